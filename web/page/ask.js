/** Questions before something is deleted: in the place of the button that asks, or in a dialog of their own. */
import { button, element } from './dom.js';

/**
 * A button that asks once: pressed, it makes room for a question with two answers.
 * @param {string} label @param {() => string} question such as "Delete 3 patterns?" @param {string} yes such as "Delete"
 * @param {() => unknown} run what it does; its rejection is the caller's to show
 * @returns {HTMLElement}
 */
export function askingButton(label, question, yes, run) {
  const root = element('span', 'asking');
  const first = button(label, 'quiet', () => {
    const refuse = button('Keep', 'quiet', back);
    const asked = element('span', 'asking-question', question());
    const group = element('span', 'asking-answers');
    group.setAttribute('role', 'group');
    group.setAttribute('aria-label', asked.textContent);
    group.append(asked, button(yes, 'danger', () => {
      back();
      run();
    }), refuse);
    group.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault(); // or the whole dialog would close
      event.stopPropagation();
      back();
    });
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
 * @param {{title: string, paragraphs: string[], yes: string}} question
 * @returns {Promise<boolean>} true only for a click on `yes`
 */
export function ask({ title, paragraphs, yes }) {
  const dialog = element('dialog', 'ask');
  const head = element('h2', '', title);
  head.id = 'ask-title';
  dialog.setAttribute('aria-labelledby', head.id);
  const actions = element('div', 'ask-actions');
  const refuse = button('Cancel', 'quiet', () => dialog.close());
  actions.append(refuse, button(yes, 'danger', () => dialog.close('yes')));
  dialog.append(head, ...paragraphs.map((text) => element('p', '', text)), actions);
  document.body.append(dialog);
  dialog.showModal();
  refuse.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}
