/** Shown below an answer: the passages of the attached files that the model read for it. A click opens a passage. */
import { element } from '../common/dom.js';
import { describe, fromError } from '../shell/problems.js';
import { t } from '../i18n/i18n.js';
import { placeWords } from '../files/words.js';

let made = 0;

/**
 * @param {import('../protocol.js').Citations} consulted
 * @param {import('../protocol_calls.js').FilesCalls} files
 * @param {() => void} onChange the answer became longer or shorter
 * @returns {HTMLElement}
 */
export function citations({ passages, found }, files, onChange) {
  const root = element('section', 'citations');
  root.setAttribute('aria-label', t('files.citations'));
  const card = element('div', 'citation-card');
  card.id = `citation-${made += 1}`;
  card.hidden = true;
  const list = element('ol', 'citation-list');
  let shown = /** @type {HTMLButtonElement|null} */ (null);
  passages.forEach((passage, at) => {
    const chip = document.createElement('button');
    chip.type = 'button';
    chip.className = 'citation';
    const place = placeWords(passage.place);
    chip.append(element('span', 'citation-number', `${at + 1}`), element('span', 'citation-name', passage.name));
    if (place) chip.append(element('span', 'citation-place', place));
    chip.setAttribute('aria-expanded', 'false');
    chip.setAttribute('aria-controls', card.id);
    chip.addEventListener('click', async () => {
      shown?.setAttribute('aria-expanded', 'false');
      const isSame = shown === chip;
      shown = isSame ? null : chip;
      card.hidden = isSame;
      if (!isSame) {
        chip.setAttribute('aria-expanded', 'true');
        const text = element('blockquote', 'citation-text', passage.text || t('files.opening'));
        text.tabIndex = 0; // it may scroll
        text.dir = 'auto';
        card.replaceChildren(element('h3', 'citation-title', place ? `${passage.name}, ${place}` : passage.name), text);
        if (!passage.text) text.textContent = await files.text({ id: passage.file }).catch((error) => describe(fromError(error)).message);
      }
      onChange();
    });
    const item = document.createElement('li');
    item.append(chip);
    list.append(item);
  });
  if (passages.length) root.append(list);
  if (found === 'words') root.append(element('p', 'citation-note', t(passages.length ? 'files.byWords' : 'files.nothingByWords')));
  root.append(card);
  return root;
}
