// Parts of a page that refresh themselves, and forms that ask first. Everything works without this file, too.
"use strict";
(() => {
  async function refresh(root) {
    const answer = await fetch(root.dataset.live, { headers: { accept: "text/html" } });
    if (answer.redirected || !answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const source = fresh.querySelector("[data-live]");
    if (!source) return;
    const parts = root.querySelectorAll("[data-part]");
    if (parts.length === 0) return;
    for (const part of parts) {
      const next = source.querySelector(`[data-part="${part.dataset.part}"]`);
      const isInUse = part.contains(document.activeElement) && document.activeElement !== document.body;
      if (next && !isInUse && next.innerHTML !== part.innerHTML) part.innerHTML = next.innerHTML;
    }
  }

  for (const root of document.querySelectorAll("[data-live]")) {
    const tick = async () => {
      if (!document.hidden) { try { await refresh(root); } catch { /* the next round may do better */ } }
      setTimeout(tick, Number(root.dataset.every) * 1000);
    };
    setTimeout(tick, Number(root.dataset.every) * 1000);
  }

  // On a narrow screen the menu is a row that scrolls.
  document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
})();
