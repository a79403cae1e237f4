"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("charts").textContent);
  const hidden = new Set();
  const views = new Map();

  const drawing = (async () => {
    for (const element of document.querySelectorAll(".plot")) {
      // Expressions of charts are interpreted, because the page's policy does not allow compiling programs.
      const options = { ast: true, renderer: "svg", actions: false, config: data.config };
      try {
        const drawn = await window.vegaEmbed(element, data.charts[element.dataset.chart], options);
        views.set(element.dataset.chart, drawn.view);
        if (hidden.size > 0) hideAlternatives(drawn.view);
      } catch (error) {
        element.textContent = "This chart could not be drawn; the tables have its values.";
        console.error(error);
      }
    }
    root.dataset.drawn = String(views.size);
  })();

  function hideAlternatives(view) {
    try {
      view.signal("hidden", [...hidden]).run();
    } catch {
      // A chart without alternatives has no such signal.
    }
  }

  for (const chip of document.querySelectorAll("[data-alternative]")) {
    chip.addEventListener("click", () => {
      const isShown = chip.getAttribute("aria-pressed") === "true";
      chip.setAttribute("aria-pressed", String(!isShown));
      if (isShown) hidden.add(chip.dataset.alternative);
      else hidden.delete(chip.dataset.alternative);
      views.forEach(hideAlternatives);
    });
  }

  const themes = ["auto", "light", "dark"];
  const themeButton = document.getElementById("theme");
  function setTheme(theme) {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    themeButton.textContent = `theme: ${theme}`;
  }
  themeButton.addEventListener("click", () => {
    setTheme(themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length]);
  });
  setTheme("auto");

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", async () => {
      const name = button.dataset.save;
      await drawing;
      const style = getComputedStyle(root);
      const picture = await views.get(name).toSVG();
      save(`${name}.svg`, "image/svg+xml", picture.replace(/var\((--[\w-]+)\)/g, (_, variable) =>
        style.getPropertyValue(variable).trim()));
    });
  }

  document.getElementById("values-button").addEventListener("click", () => {
    save("report.json", "application/json", document.getElementById("values").textContent);
  });

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(document.getElementById(button.dataset.copy));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "selected";
      }
    });
  }

  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
