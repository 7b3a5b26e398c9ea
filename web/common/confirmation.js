/** Questions before something is deleted: where the button was that asks, or in a dialog of their own. */
import { t } from '../i18n/i18n.js';
import { button, element } from './dom.js';
import { ownKeys } from '../shell/keyboard.js';

const UNSEEN_MS = 1000; // a double click takes half of this

/**
 * A button that asks once: pressed, it makes room for a question with two answers.
 * @param {string} label @param {() => string} question such as "Delete 3 patterns?" @param {string} yes such as "Delete"
 * @param {() => unknown} run what it does; its rejection is the caller's to show
 * @returns {HTMLElement}
 */
export function askingButton(label, question, yes, run) {
  const root = element('span', 'asking');
  const first = button(label, 'quiet', () => {
    const refuse = button(t('forms.keep'), 'quiet', back);
    const asked = element('span', 'asking-question', question());
    const group = element('span', 'asking-answers');
    group.setAttribute('role', 'group');
    group.setAttribute('aria-label', asked.textContent);
    group.append(asked, button(yes, 'danger', () => {
      back();
      run();
    }), refuse);
    group.addEventListener('keydown', ownKeys((event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault(); // or the whole dialog would close
      event.stopPropagation();
      back();
    }));
    root.replaceChildren(group);
    refuse.focus();
  });
  const back = () => {
    root.replaceChildren(first);
    first.focus();
  };
  root.append(first);
  return root;
}

/**
 * @param {{title: string, paragraphs: string[], yes: string, no?: string, isUnexpected?: boolean, isHarmless?: boolean}}
 *   question `isHarmless`: nothing is lost by `yes`. `isUnexpected`: no action of the user led to the question, so `yes` waits
 *   a moment: a click or a key may be meant for what was shown before
 * @returns {Promise<boolean>} true only for a click on `yes`
 */
export function ask({ title, paragraphs, yes, no = t('forms.cancel'), isUnexpected = false, isHarmless = false }) {
  const dialog = element('dialog', 'ask');
  const head = element('h2', '', title);
  head.id = 'ask-title';
  dialog.setAttribute('aria-labelledby', head.id);
  const actions = element('div', 'ask-actions');
  const refuse = button(no, 'quiet', () => dialog.close());
  const agree = button(yes, isHarmless ? 'primary' : 'danger', () => dialog.close('yes'));
  actions.append(refuse, agree);
  dialog.append(head, ...paragraphs.map((text) => element('p', '', text)), actions);
  document.body.append(dialog);
  dialog.showModal();
  refuse.focus();
  const stopWaiting = isUnexpected ? waitToBeSeen(agree) : () => {};
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      stopWaiting();
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}

/** A button counts only when the window has had the focus for a while. @returns {() => void} stops watching */
function waitToBeSeen(made) {
  let timer = 0;
  const wait = () => {
    made.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(() => (made.disabled = false), UNSEEN_MS);
  };
  addEventListener('focus', wait);
  wait();
  return () => {
    clearTimeout(timer);
    removeEventListener('focus', wait);
  };
}
