// Try it: users choose an image, which the server attacks and purifies, see it, and can cancel.
const Trial = (() => {
  const EVERY = 250; // milliseconds
  const byId = (id) => document.getElementById(id);
  let chosen = null; // Blob
  let running = null; // address of the trial under way

  function say(text, wrong = false) {
    const state = byId("trial-state");
    if (state.textContent !== text) state.textContent = text;
    state.classList.toggle("warning", wrong);
  }

  function busy(address) {
    running = address;
    byId("cancel").disabled = address === null;
    submit().disabled = address !== null || chosen === null;
  }

  const submit = () => byId("trial-form").querySelector('button[type="submit"]');

  function choose(blob) {
    const form = byId("trial-form");
    const types = byId("file").accept.split(",");
    if (!types.includes(blob.type)) {
      say(`This file is not a readable image; use ${types.map((t) => t.split("/")[1].toUpperCase()).join(", ")}.`, true);
      return;
    }
    if (blob.size > Number(form.dataset.largest)) {
      say(`This file is larger than ${Math.round(form.dataset.largest / 2 ** 20)} MB; use a smaller one.`, true);
      return;
    }
    chosen = blob;
    const picture = byId("chosen");
    URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(blob);
    picture.alt = "The chosen image";
    picture.hidden = false;
    say("");
    busy(running);
  }

  function show(name, found) {
    const figure = byId(`stage-${name}`);
    const picture = figure.querySelector("img");
    picture.hidden = !found;
    const caption = figure.querySelector("figcaption");
    if (!found) {
      caption.replaceChildren();
      return;
    }
    picture.src = found.image;
    picture.alt = `The ${name} image`;
    caption.replaceChildren(...found.predictions.map(prediction));
  }

  function prediction({ who, name, share, right }) {
    const line = document.createElement("p");
    const sure = document.createElement("b");
    sure.textContent = name;
    sure.className = right ? "" : "wrong";
    line.append(`${who}: `, sure, ` ${Math.round(100 * share)} %${right ? "" : " (wrong)"}`);
    return line;
  }

  function frames(list) {
    byId("frames").replaceChildren(
      ...list.map(({ step, image }) => {
        const figure = document.createElement("figure");
        const picture = new Image();
        picture.src = image;
        picture.alt = `After ${step} Langevin steps`;
        const caption = document.createElement("figcaption");
        caption.textContent = step;
        figure.append(picture, caption);
        return figure;
      }),
    );
  }

  function update(state) {
    byId("done").value = state.done;
    say(state.message, state.failed);
    for (const name of ["natural", "attacked", "purified"]) show(name, state[name]);
    frames(state.frames);
  }

  async function follow(address) {
    try {
      const answer = await fetch(address);
      const state = await answer.json();
      if (!answer.ok) throw new Error(state.error);
      update(state);
      if (!state.over) {
        setTimeout(() => follow(address), EVERY);
        return;
      }
    } catch (error) {
      say(error.message || "The server does not answer.", true);
    }
    busy(null);
  }

  async function send(event) {
    event.preventDefault();
    const settings = new URLSearchParams(new FormData(event.target));
    settings.delete("file");
    busy("");
    say("Sending the image");
    try {
      const answer = await fetch(`trial?${settings}`, { method: "POST", body: chosen, headers: { "Content-Type": chosen.type } });
      const { address, error } = await answer.json();
      if (!answer.ok) throw new Error(error);
      busy(address);
      follow(address);
    } catch (error) {
      say(error.message || "The server does not answer.", true);
      busy(null);
    }
  }

  function fromDataAddress(address) {
    const [head, body] = address.split(",");
    const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
    return new Blob([bytes], { type: head.slice(5).split(";")[0] });
  }

  function start() {
    const form = byId("trial-form");
    if (!form) return;
    const drop = byId("drop");
    form.addEventListener("submit", send);
    byId("cancel").addEventListener("click", () => running && fetch(`${running}/cancel`, { method: "POST" }));
    byId("file").addEventListener("change", (event) => event.target.files[0] && choose(event.target.files[0]));
    byId("radius").addEventListener("input", (event) => (event.target.nextElementSibling.textContent = `${event.target.value}/255`));
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", name === "dragenter" || name === "dragover");
      });
    }
    drop.addEventListener("drop", (event) => event.dataTransfer.files[0] && choose(event.dataTransfer.files[0]));
    for (const button of drop.querySelectorAll(".examples button")) {
      button.addEventListener("click", () => choose(fromDataAddress(button.firstElementChild.src)));
    }
  }

  return { start };
})();
