/**
 * Keeps the newest words in view. It stops as soon as the reader scrolls up, however little, or selects something. It starts
 * again at the very end, or with the button "Jump to latest", which is shown while the newest words are far.
 */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { icon } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

const FAR_PX = 240;
const AT_END_PX = 1; // heights are rounded

export class AutoScroll {
  #scroller;
  #jump = element('button', 'jump');
  #isOn = true;
  #top = 0; // the last scroll position, rounded
  #end = 0; // the largest possible position at that time
  #selected = /** @type {[Node|null, number]} */ ([null, 0]); // where the last selection ends

  /** @param {HTMLElement} scroller */
  constructor(scroller) {
    this.#scroller = scroller;
    this.#jump.type = 'button';
    this.#jump.hidden = true;
    render(html`${icon('arrow-down')}<span>${t('answers.latest')}</span>`, this.#jump);
    this.#jump.addEventListener('click', () => {
      this.begin();
      this.goOn();
    });
    scroller.append(this.#jump);
    scroller.addEventListener('scroll', () => this.#look(), { passive: true });
    scroller.addEventListener('wheel', ({ deltaX, deltaY, ctrlKey }) => { // a growing answer may stop the scrolling at once
      if (-deltaY > Math.abs(deltaX) && !ctrlKey && this.#top > 0) this.#set(false);
    }, { passive: true });
    document.addEventListener('selectionchange', () => this.#lookAtSelection());
  }

  begin() {
    this.#set(true);
    this.#top = 0; // the earlier content may have been longer
  }

  end() {
    this.#set(false);
  }

  /** Called when the content has changed: scroll to its end, unless the reader is elsewhere. */
  goOn() {
    const below = this.#look();
    if (!this.#isOn || below <= AT_END_PX) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#look();
  }

  /** @returns {number} the height below the view */
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const end = scrollHeight - clientHeight, below = end - scrollTop, moved = scrollTop - this.#top;
    const isAtEnd = below <= AT_END_PX, wasMoved = isAtEnd && end < this.#end; // by the height that is gone
    if (moved <= -1 && !wasMoved) this.#set(false);
    else if (moved > 0 && isAtEnd) this.#set(true);
    if (Math.abs(moved) >= 1) this.#top = Math.min(scrollTop, end); // smaller amounts add up
    this.#end = end;
    this.#jump.hidden = below < FAR_PX;
    return below;
  }

  #lookAtSelection() {
    const { isCollapsed = true, focusNode = null, focusOffset = 0 } = getSelection() ?? {};
    const [node, offset] = this.#selected;
    this.#selected = [focusNode, focusOffset];
    const isNew = focusNode !== node || focusOffset !== offset;
    if (isNew && !isCollapsed && this.#scroller.contains(focusNode)) this.#set(false);
  }

  #set(isOn) {
    this.#isOn = isOn;
    // Elsewhere the browser keeps the visible text in place (scroll anchoring), which must not count as scrolling up.
    this.#scroller.style.overflowAnchor = isOn ? 'none' : '';
  }
}
