/** Keys and focus of the page as a whole. */

const ABOVE = 'dialog[open], :popover-open:not(details > *)'; // elements that close themselves
const INPUT_METHOD = 229; // Safari's key code for the Enter that ends a composition, which it reports after the end

/**
 * Wraps a `keydown` listener so that it ignores keys of an input method, which uses Enter, Escape and the arrows itself.
 * @template {KeyboardEvent} Pressed
 * @param {(event: Pressed) => void} run @returns {(event: Pressed) => void}
 */
export function ownKeys(run) {
  return (event) => {
    if (!event.isComposing && event.keyCode !== INPUT_METHOD) run(event);
  };
}

/**
 * The Escape key, wherever the focus is: closes the open chip that has the focus, else stops the answer, else closes an
 * open chip. A dialog closes itself.
 * @param {HTMLElement} log the element that holds the chips
 * @param {() => boolean} stop returns true if there was an answer to stop
 */
export function listenForEscape(log, stop) {
  document.addEventListener('keydown', ownKeys((event) => {
    if (event.key !== 'Escape' || event.defaultPrevented || document.querySelector(ABOVE)) return;
    const open = /** @type {HTMLDetailsElement[]} */ ([...log.querySelectorAll('details[open]')]);
    const focused = open.find((chip) => chip.contains(document.activeElement));
    if (focused) {
      focused.open = false;
      focused.querySelector('summary')?.focus();
    } else if (!stop() && open.length) {
      open[open.length - 1].open = false;
    }
  }));
}

/**
 * A dialog returns the focus to where it was. If that element is no longer on the page, such as a notice that has done its
 * work, `focus` takes the focus instead of losing it.
 * @param {() => void} focus
 */
export function keepFocus(focus) {
  document.addEventListener('close', () => {
    if (document.activeElement === document.body) focus();
  }, { capture: true }); // the event does not bubble
}
