// Updates a served page: sections that have changed replace the old ones.
const Live = (() => {
  const EVERY = 3000; // milliseconds

  function pulse(text, stale) {
    const sign = document.getElementById("pulse");
    if (sign.textContent !== text) sign.textContent = text;
    sign.classList.toggle("stale", stale);
  }

  function put(main, fresh) {
    let section = document.getElementById(fresh.name);
    if (section?.dataset.digest === fresh.digest) return section;
    const age = section ? Strips.age(section) : 0;
    const open = section ? [...section.querySelectorAll("details[open]")].map((it) => details(section).indexOf(it)) : [];
    const focus = section ? reachable(section).indexOf(document.activeElement) : -1;
    if (section) Charts.clear(section);
    else {
      section = document.createElement("section");
      section.id = fresh.name;
      if (fresh.title) section.setAttribute("aria-labelledby", `${fresh.name}-title`);
      main.append(section);
    }
    section.dataset.digest = fresh.digest;
    section.innerHTML = fresh.html;
    open.forEach((i) => details(section)[i]?.setAttribute("open", ""));
    Charts.drawAll(section);
    Strips.start(section, age);
    reachable(section)[focus]?.focus({ preventScroll: true }); // who reads with the keyboard stays where they were
    return section;
  }

  const reachable = (section) => [...section.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  const details = (section) => [...section.querySelectorAll("details")];

  function take(page) {
    const main = document.getElementById("main");
    const sections = page.sections.map((fresh) => put(main, fresh));
    for (const old of [...main.children]) if (!sections.includes(old)) old.remove();
    sections.forEach((section, i) => {
      if (main.children[i] !== section) main.insertBefore(section, main.children[i]);
    });
    const list = document.querySelector("nav ul");
    list.replaceChildren(
      ...page.sections.filter((it) => it.title).map((it) => {
        const link = document.createElement("a");
        link.href = `#${it.name}`;
        link.textContent = it.title;
        const item = document.createElement("li");
        item.append(link);
        return item;
      }),
    );
    document.documentElement.dataset.live = page.digest;
  }

  async function look() {
    try {
      const answer = await fetch(`sections.json?have=${document.documentElement.dataset.live}`);
      if (answer.status === 200) take(await answer.json());
      else if (answer.status !== 204) throw new Error(answer.statusText);
      pulse("live", false);
    } catch {
      pulse("no longer served: these are the last results", true);
    }
    setTimeout(look, document.hidden ? 4 * EVERY : EVERY);
  }

  return { start: () => setTimeout(look, EVERY) };
})();
