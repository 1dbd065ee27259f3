Charts.drawAll(document);
Strips.start(document);
Trial.start();
if (document.documentElement.dataset.live) Live.start();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Charts.redraw);

// For printing: a white page, narrower than most screens, with all details open.
function printing(yes) {
  document.documentElement.classList.toggle("printing", yes);
  for (const fields of document.querySelectorAll("#recipe details")) fields.open = yes;
  Charts.fit();
  Charts.redraw();
}
addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));
