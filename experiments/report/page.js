"use strict";
// Draws every plot of the page and lets the reader switch what the loss curves are drawn over.
const views = [];
const dark = matchMedia("(prefers-color-scheme: dark)").matches;

for (const place of document.querySelectorAll(".plot")) {
  const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
  vegaEmbed(place, spec, {
    renderer: "svg",
    actions: false,
    tooltip: { theme: dark ? "dark" : "light" },
  }).then(({ view }) => {
    views.push(view);
    place.dataset.drawn = "yes";
  });
}

for (const choice of document.querySelectorAll(".switch input")) {
  choice.addEventListener("change", () => {
    for (const other of document.querySelectorAll(`.switch input[value="${choice.value}"]`)) {
      other.checked = true;
    }
    for (const name of document.querySelectorAll(".axis-name")) {
      name.textContent = choice.dataset.name;
    }
    for (const view of views) {
      if (Object.hasOwn(view.getState({ signals: (name) => name === "axis" }).signals, "axis")) {
        view.signal("axis", choice.value).runAsync();
      }
    }
  });
}
