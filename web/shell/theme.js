/** Light or dark: the user's choice, or else the system's. web/shell/first_paint.js applies it before anything is painted. */
import { local } from '../common/web_storage.js';

const KEY = 'sonata.theme';
const SYSTEM = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();

SYSTEM.addEventListener('change', tell);

/** @returns {'light'|'dark'|null} null: as the system says */
export function chosenTheme() {
  const theme = document.documentElement.dataset.theme;
  return theme === 'light' || theme === 'dark' ? theme : null;
}

/** @param {'light'|'dark'|null} theme */
export function chooseTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  if (theme) local.setItem(KEY, theme);
  else local.removeItem(KEY);
  tell();
}

/** @param {() => void} run called when the colours change @returns {() => void} stops this */
export function onThemeChange(run) {
  listeners.add(run);
  return () => listeners.delete(run);
}

/** The current value of a colour of the style sheet, for drawing by scripts. @param {string} name such as --ink */
export function themeColour(name) {
  const probe = document.createElement('i');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function tell() {
  for (const run of listeners) run();
}
