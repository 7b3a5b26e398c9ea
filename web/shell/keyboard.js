/** Keys and focus of the page as a whole. */

const ABOVE = 'dialog[open], :popover-open:not(details > *)'; // what closes itself
const INPUT_METHOD = 229; // what Safari calls the Enter that ends one, and of which it tells after the end

/**
 * A listener for `keydown`, without the keys that belong to an input method: it has Enter, Escape and the arrows for itself.
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
 * @param {HTMLElement} log what holds the chips
 * @param {() => boolean} stop whether there was an answer to stop
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
 * A dialog gives the focus back to where it was. Where that is not on the page any more, as a notice that has done its
 * work, the focus goes to `focus` instead of getting lost.
 * @param {() => void} focus
 */
export function keepFocus(focus) {
  document.addEventListener('close', () => {
    if (document.activeElement === document.body) focus();
  }, { capture: true }); // the event does not bubble
}
