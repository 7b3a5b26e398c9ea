/**
 * Keys for the whole page, and the list of them that `?` opens. A key without a modifier counts only while no text field has
 * the focus.
 *
 * @typedef {{keys: string[], text: string, run?: () => void}} Shortcut keys: as `KeyboardEvent.key`, with "Ctrl" (also the
 *   Mac's Command) and "Shift" before it; text: a key of the texts; run: missing if a view handles it itself
 */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { t } from '../i18n/i18n.js';
import { element } from '../common/dom.js';
import { ownKeys } from './keyboard.js';

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

export class Shortcuts {
  #shortcuts;
  #list = /** @type {HTMLElement|null} */ (null);

  /** @param {Shortcut[]} shortcuts */
  constructor(shortcuts) {
    this.#shortcuts = [...shortcuts, { keys: ['?'], text: 'shortcuts.list', run: () => this.show() }];
    document.addEventListener('keydown', ownKeys((event) => this.#onKey(event)));
  }

  /** Show the list of keys. */
  show() {
    const list = (this.#list ??= makeList());
    render(html`
      <h2 id="shortcuts-title" tabindex="-1" autofocus>${t('shortcuts.title')}</h2>
      <dl>${this.#shortcuts.map(({ keys, text }) => html`
        <div><dt>${t(text)}</dt><dd>${keys.map((key) => html`<kbd>${shown(key)}</kbd>`)}</dd></div>`)}</dl>`, list);
    list.showPopover();
  }

  #onKey(event) {
    if (event.defaultPrevented || event.altKey || document.querySelector('dialog[open]')) return;
    const pressed = this.#shortcuts.find(({ keys, run }) => run && fits(keys, event));
    if (!pressed) return;
    event.preventDefault();
    pressed.run?.();
  }
}

function fits(keys, event) {
  const key = keys[keys.length - 1];
  const wantsControl = keys.includes('Ctrl');
  if ((event.ctrlKey || event.metaKey) !== wantsControl || event.key.toLowerCase() !== key.toLowerCase()) return false;
  if (wantsControl) return event.shiftKey === keys.includes('Shift');
  const { target } = event;
  return !(target instanceof HTMLElement && (target.isContentEditable || target.matches('input, textarea, select')));
}

function makeList() {
  const list = element('section', 'menu-card shortcuts');
  list.popover = 'auto';
  list.role = 'dialog';
  list.setAttribute('aria-labelledby', 'shortcuts-title');
  document.body.append(list);
  return list;
}

function shown(key) {
  if (key === 'Ctrl') return IS_MAC ? '⌘' : t('shortcuts.ctrl');
  if (key === 'Shift') return IS_MAC ? '⇧' : t('shortcuts.shift');
  return { ArrowUp: '↑', Enter: '↵', Escape: 'Esc' }[key] ?? key;
}
