/** The size of all text. web/page/early.js applies it before anything is painted. */
const KEY = 'sonata.text';
export const TEXT_SIZES = ['small', 'usual', 'large', 'larger'];

/** @returns {string} one of `TEXT_SIZES` */
export function chosenTextSize() {
  return document.documentElement.dataset.text ?? 'usual';
}

/** @param {string} size one of `TEXT_SIZES` */
export function chooseTextSize(size) {
  const isUsual = size === 'usual';
  if (isUsual) delete document.documentElement.dataset.text;
  else document.documentElement.dataset.text = size;
  try {
    if (isUsual) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, size);
  } catch { /* then for now only */ }
}
