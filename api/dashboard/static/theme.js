// The reader's theme: auto, light or dark. Loaded before the page is painted, so that nothing flashes.
"use strict";
(() => {
  const names = ["auto", "light", "dark"];
  const read = () => { try { return localStorage.getItem("candela-theme") || "auto"; } catch { return "auto"; } };
  const apply = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    const label = document.querySelector("[data-theme-name]");
    if (label) label.textContent = `Theme: ${name}`;
  };
  apply(read());
  document.addEventListener("DOMContentLoaded", () => {
    apply(read());
    document.querySelector("[data-theme-switch]")?.addEventListener("click", () => {
      const next = names[(names.indexOf(read()) + 1) % names.length];
      try { localStorage.setItem("candela-theme", next); } catch { /* private mode: only for this page */ }
      apply(next);
    });
  });
})();
