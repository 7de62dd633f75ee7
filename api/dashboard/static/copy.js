// Copy a new key's secret to the clipboard.
"use strict";
document.querySelector("[data-copy]")?.addEventListener("click", async (event) => {
  await navigator.clipboard.writeText(document.querySelector("[data-secret]").textContent);
  event.target.textContent = "Copied";
});
