/**
 * Keeps the newest words in view. It ends as soon as the reader moves up, however little, or selects something; it begins
 * again at the very end, or with the button "Jump to latest", which is there while the newest words are far.
 */
import { icon } from '../common/icon.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

const FAR_PX = 240;
const AT_END_PX = 1; // heights are rounded

export class Following {
  #scroller;
  #jump = element('button', 'jump');
  #isOn = true;
  #top = 0; // where the reader was, but for parts of a pixel
  #end = 0; // the most that it could have been
  #selected = /** @type {[Node|null, number]} */ ([null, 0]); // where the last selection ends

  /** @param {HTMLElement} scroller */
  constructor(scroller) {
    this.#scroller = scroller;
    this.#jump.type = 'button';
    this.#jump.hidden = true;
    this.#jump.append(icon('arrow-down'), element('span', '', t('answers.latest')));
    this.#jump.addEventListener('click', () => {
      this.begin();
      this.goOn();
    });
    scroller.append(this.#jump);
    scroller.addEventListener('scroll', () => this.#look(), { passive: true });
    scroller.addEventListener('wheel', ({ deltaX, deltaY, ctrlKey }) => { // a growing answer may stop the move at once
      if (-deltaY > Math.abs(deltaX) && !ctrlKey && this.#top > 0) this.#set(false);
    }, { passive: true });
    document.addEventListener('selectionchange', () => this.#lookAtSelection());
  }

  begin() {
    this.#set(true);
    this.#top = 0; // what was shown before may have been longer
  }

  end() {
    this.#set(false);
  }

  /** What is shown has changed: go on to its end, unless the reader is elsewhere. */
  goOn() {
    const below = this.#look();
    if (!this.#isOn || below <= AT_END_PX) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#look();
  }

  /** @returns {number} how much there is below */
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const end = scrollHeight - clientHeight, below = end - scrollTop, moved = scrollTop - this.#top;
    const isAtEnd = below <= AT_END_PX, wasMoved = isAtEnd && end < this.#end; // by what is shorter now
    if (moved <= -1 && !wasMoved) this.#set(false);
    else if (moved > 0 && isAtEnd) this.#set(true);
    if (Math.abs(moved) >= 1) this.#top = Math.min(scrollTop, end); // what is less adds up
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
    // Elsewhere the browser moves the reader along with what he reads, which must not look as if he moved up.
    this.#scroller.style.overflowAnchor = isOn ? 'none' : '';
  }
}
