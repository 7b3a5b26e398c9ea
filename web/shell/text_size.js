/** The size of all text. web/shell/first_paint.js applies it before anything is painted. */
import { local } from '../common/web_storage.js';

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
  if (isUsual) local.removeItem(KEY);
  else local.setItem(KEY, size);
}
