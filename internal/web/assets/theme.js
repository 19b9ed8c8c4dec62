// Sets the colours before anything is drawn.
"use strict";
(() => {
  let saved = null;
  try { saved = localStorage.getItem("loom-theme"); } catch { /* no storage: as the system says */ }
  if (saved === "light" || saved === "dark") document.documentElement.dataset.theme = saved;
})();
