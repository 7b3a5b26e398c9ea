/** Marks when a part of the start was done, for tests/bench/page/page_phases.py and the browser's own tools. */

/** @param {string} name */
export function phase(name) {
  performance.mark(`sonata: ${name}`);
}
