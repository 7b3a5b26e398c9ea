/**
 * A card above the page, near the element that it belongs to. A click elsewhere, Escape, or the same button again closes it,
 * and the focus returns to where it was. Only one is open at a time.
 */
import { render } from '../vendor/lit-html/lit-html.js';
import { element } from './dom.js';
import { ownKeys } from '../shell/keyboard.js';

const MARGIN_PX = 8;

let current = /** @type {{near: HTMLElement, close: (refocus: boolean) => void}|null} */ (null);

/**
 * @param {HTMLElement} near a button, or a link: shown as expanded while the card is open
 * @param {{label: string, className?: string, content: unknown, focus?: string}} card `content`: a template; `focus`: selects
 *   the element in it that gets the focus
 * @returns {() => void} closes the card
 */
export function openCard(near, { label, className = '', content, focus }) {
  const isSame = current?.near === near;
  current?.close(isSame);
  if (isSame) return () => {};
  const root = element('div', `card ${className}`);
  root.setAttribute('popover', 'manual');
  root.setAttribute('role', 'dialog');
  root.setAttribute('aria-label', label);
  root.tabIndex = -1;
  render(content, root);
  const onPointer = ({ target }) => {
    if (!(target instanceof Node) || (!root.contains(target) && !near.contains(target))) close(false);
  };
  const onKey = ownKeys((event) => {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation(); // it must not stop an answer
    close(true);
  });
  const onFocus = ({ target }) => {
    if (target instanceof Node && !root.contains(target) && target !== near) close(false);
  };
  const move = () => place(root, near);
  const grows = new ResizeObserver(move);
  const close = (refocus) => {
    if (current?.close !== close) return;
    current = null;
    document.removeEventListener('pointerdown', onPointer, true);
    document.removeEventListener('keydown', onKey, true);
    document.removeEventListener('focusin', onFocus);
    removeEventListener('resize', move);
    grows.disconnect();
    document.removeEventListener('scroll', move, true);
    near.removeAttribute('aria-expanded');
    const hadFocus = root.contains(document.activeElement);
    root.remove();
    if (refocus || hadFocus) near.focus({ preventScroll: true });
  };
  document.body.append(root);
  root.showPopover();
  place(root, near);
  near.setAttribute('aria-expanded', 'true');
  const first = focus ? root.querySelector(focus) : null;
  (first instanceof HTMLElement ? first : root).focus({ preventScroll: true });
  document.addEventListener('pointerdown', onPointer, true);
  document.addEventListener('keydown', onKey, true);
  document.addEventListener('focusin', onFocus);
  addEventListener('resize', move);
  grows.observe(root);
  document.addEventListener('scroll', move, true);
  current = { near, close };
  return () => close(true);
}

/**
 * The panel of a `details` as a card: above the page, near the chip that opens it. A click elsewhere closes it; Escape is left
 * to page/keyboard.js. Its `toggle` event may fill the panel: it is placed again as it grows.
 * @param {HTMLDetailsElement} details @param {HTMLElement} panel in it
 */
export function floatPanel(details, panel) {
  panel.popover = 'manual';
  const move = () => place(panel, details);
  const onPointer = ({ target }) => {
    if (!details.isConnected || !(target instanceof Node) || !details.contains(target)) details.open = false;
  };
  const grown = new ResizeObserver(move);
  details.addEventListener('toggle', () => {
    const how = details.open ? 'addEventListener' : 'removeEventListener';
    document[how]('pointerdown', onPointer);
    document[how]('scroll', move, true);
    globalThis[how]('resize', move);
    if (!details.open) grown.disconnect();
    if (!details.isConnected) return;
    if (!details.open) return panel.hidePopover();
    panel.showPopover();
    move();
    grown.observe(panel);
  });
}

/** Below the button, else above it, and within the window. */
function place(root, near) {
  const at = near.getClientRects()[0] ?? near.getBoundingClientRect();
  const { width, height } = root.getBoundingClientRect();
  const below = at.bottom + MARGIN_PX;
  const top = below + height + MARGIN_PX <= innerHeight ? below : at.top - height - MARGIN_PX;
  root.style.left = `${Math.max(MARGIN_PX, Math.min(at.left, innerWidth - width - MARGIN_PX))}px`;
  root.style.top = `${Math.max(MARGIN_PX, Math.min(top, innerHeight - height - MARGIN_PX))}px`;
}
