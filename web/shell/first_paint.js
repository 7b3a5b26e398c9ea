/* Sets what must be known before the first paint, so that nothing jumps: the theme, the text size, and an open side bar. */
try {
  const { dataset } = document.documentElement;
  for (const [name, values] of [['theme', ['light', 'dark']], ['text', ['small', 'large', 'larger']], ['sidebar', ['closed']]]) {
    const kept = localStorage.getItem(`sonata.${name}`);
    if (values.includes(kept)) dataset[name] = kept;
  }
} catch { /* the browser forbids the page to store anything */ }

/*
 * A failure before the page is assembled is shown in its banner: otherwise it would load for ever. main.js handles later ones.
 */
function sayBroken({ error, reason, target }) {
  const why = error ?? reason ?? (target instanceof HTMLScriptElement ? target.src : null);
  const banner = document.getElementById('banner');
  if (window.sonata || why === null || !banner?.hidden) return;
  document.documentElement.dataset.state = 'failed';
  for (const id of ['loading', 'model-chip']) document.getElementById(id).hidden = true;
  banner.querySelector('pre').textContent = why.stack || String(why);
  banner.querySelector('details').hidden = false;
  banner.hidden = false;
}
addEventListener('error', sayBroken, true);
addEventListener('unhandledrejection', sayBroken);
