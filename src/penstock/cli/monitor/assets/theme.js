// Sets the theme before the page is drawn, so that no light flash comes first. Themes: auto (the system's), light, dark.
(() => {
  const themes = ["auto", "light", "dark"];
  let now = "auto";
  try { now = localStorage.getItem("penstock-theme") || now; } catch { /* storage may be off */ }
  if (!themes.includes(now)) now = "auto";
  const root = document.documentElement;
  const show = () => { root.dataset.theme = now; };
  show();
  const tell = () => dispatchEvent(new Event("themed"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  window.nextTheme = () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"]; // the first press always changes something
    now = order[(order.indexOf(now) + 1) % order.length];
    try { localStorage.setItem("penstock-theme", now); } catch { /* it lasts as long as the page */ }
    show();
    tell();
    return now;
  };
})();
