/** Shown below an answer: the passages of the attached files that the model read for it. A click opens a passage. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
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
  const id = `citation-${made += 1}`;
  let shown = -1; // the index of the open passage
  let text = '';
  const choose = async (at) => {
    shown = shown === at ? -1 : at;
    const passage = passages[at];
    text = passage.text || t('files.opening');
    draw();
    if (shown === at && !passage.text) {
      const found = await files.text({ id: passage.file }).catch((error) => describe(fromError(error)).message);
      if (shown !== at) return;
      text = found;
      draw();
    }
    onChange();
  };
  const chip = ({ name, place }, at) => html`
    <li><button type="button" class="citation" aria-expanded=${String(at === shown)} aria-controls=${id} @click=${() => choose(at)}>
      <span class="citation-number">${at + 1}</span><span class="citation-name">${name}</span>
      ${placeWords(place) ? html`<span class="citation-place">${placeWords(place)}</span>` : nothing}</button></li>`;
  const card = ({ name, place }) => html`
    <h3 class="citation-title">${[name, placeWords(place)].filter(Boolean).join(', ')}</h3>
    <blockquote class="citation-text" tabindex="0" dir="auto">${text}</blockquote>`; // it may scroll
  const draw = () => render(html`
    ${passages.length ? html`<ol class="citation-list">${passages.map(chip)}</ol>` : nothing}
    ${found === 'words' ? html`<p class="citation-note">${t(passages.length ? 'files.byWords' : 'files.nothingByWords')}</p>` : nothing}
    <div class="citation-card" id=${id} ?hidden=${shown < 0}>${shown < 0 ? nothing : card(passages[shown])}</div>`, root);
  draw();
  return root;
}
