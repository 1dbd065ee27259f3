// The slider below Figure 1 shows all chains of all runs at one step.
const Strips = (() => {
  const said = (steps) => `${steps.toLocaleString("en-US")} Langevin steps`;

  function rowOf(steps, age) {
    let row = 0;
    while (row + 1 < steps.length && steps[row + 1] <= age) row += 1;
    return row;
  }

  function show(life, ages, index) {
    const age = ages[index];
    const slider = life.querySelector("#age");
    slider.setAttribute("aria-valuetext", said(age));
    life.querySelector("#age-said").textContent = said(age);
    Charts.mark(life.querySelector("figure.chart"), age);
    for (const strip of life.querySelectorAll(".strip")) {
      const steps = JSON.parse(strip.dataset.steps);
      const row = rowOf(steps, age);
      const now = strip.querySelector(".now");
      now.setAttribute("aria-label", `${now.children.length} chains of ${strip.dataset.name} after ${said(steps[row])}`);
      for (const cell of now.children) cell.style.setProperty("--r", row);
      const shown = [...strip.querySelectorAll(".age")].filter((it) => it.offsetParent); // fewer on narrow screens
      const nearest = shown.filter((it) => Number(it.dataset.row) <= row).pop() ?? shown[0];
      for (const it of strip.querySelectorAll(".age")) it.classList.toggle("current", it === nearest);
    }
  }

  function start(root, age = 0) {
    const life = root.querySelector(".life");
    if (!life) return;
    const slider = life.querySelector("#age");
    const ages = JSON.parse(life.querySelector('script[type="application/json"]').textContent).x;
    slider.value = rowOf(ages, age);
    slider.addEventListener("input", () => show(life, ages, Number(slider.value)));
    for (const strip of life.querySelectorAll(".strip")) {
      const steps = JSON.parse(strip.dataset.steps);
      for (const column of strip.querySelectorAll(".age")) {
        column.addEventListener("click", () => {
          slider.value = rowOf(ages, steps[Number(column.dataset.row)]);
          show(life, ages, Number(slider.value));
        });
      }
    }
    show(life, ages, Number(slider.value));
  }

  function age(root) {
    const life = root.querySelector(".life");
    if (!life) return 0;
    const ages = JSON.parse(life.querySelector('script[type="application/json"]').textContent).x;
    return ages[Number(life.querySelector("#age").value)];
  }

  return { start, age };
})();
