/** Elements that calls show below their lines: who runs a call gives one, and the line takes it, whichever comes first. */

const waiting = /** @type {Map<string, HTMLElement>} */ (new Map());
const lines = /** @type {Map<string, (element: HTMLElement) => void>} */ (new Map());
const keyOf = (name, given) => JSON.stringify([name, given]);

/** @param {string} name @param {Record<string, any>} given the arguments @param {HTMLElement} element */
export function showCall(name, given, element) {
  const key = keyOf(name, given), take = lines.get(key);
  if (take) take(element);
  else waiting.set(key, element);
}

/**
 * Take what a call shows while it runs.
 * @param {string} name @param {Record<string, any>} given the arguments @param {(element: HTMLElement) => void} take
 * @returns {() => void} ends it
 */
export function takeViews(name, given, take) {
  const key = keyOf(name, given), before = waiting.get(key);
  lines.set(key, take);
  waiting.delete(key);
  if (before) take(before);
  return () => {
    if (lines.get(key) === take) lines.delete(key);
  };
}
