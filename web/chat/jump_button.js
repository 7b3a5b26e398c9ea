/** "Jump to latest": there while the reader has scrolled up, away from the newest words. */
import { icon } from '../common/icon.js';
import { element } from '../page/dom.js';
import { t } from '../i18n/i18n.js';

const FAR_PX = 240;

export class JumpButton {
  element = element('button', 'jump');

  /** @param {HTMLElement} scroller @param {() => void} onJump */
  constructor(scroller, onJump) {
    this.element.type = 'button';
    this.element.hidden = true;
    this.element.append(icon('arrow-down'), element('span', '', t('answers.latest')));
    this.element.addEventListener('click', onJump);
    const look = () => {
      const below = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
      this.element.hidden = below < FAR_PX;
    };
    scroller.addEventListener('scroll', look, { passive: true });
    new ResizeObserver(look).observe(scroller);
  }
}
