/** The chip of an answer that a tool computed. It names the tool and, when opened, shows the working. No model guessed it. */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { floatPanel } from '../common/card.js';
import { element, part } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

/** The panels that an answer about Sonata mentions: panel_opener.js opens them. */
const HELPS = [['learned/lessons', 'panel.learned'], ['settings/model', 'panel.tab_model'], ['settings/storage', 'panel.tab_storage']];

export class ComputedChip {
  element = element('div', 'lesson computed');

  /** @param {Pick<import('../protocol.js').Computation, 'kind'|'working'>} computation its working is in the language of the question */
  constructor({ kind, working }) {
    const isHelp = kind === 'help';
    const name = isHelp ? t('tools.kind_help') : `${t('tools.computed')} · ${t(`tools.kind_${kind}`)}`;
    render(html`
      <details class="lesson-details">
        <summary class="lesson-chip">${name}</summary>
        <div class="lesson-panel">
          <h3>${t(isHelp ? 'tools.kind_help' : 'tools.how')}</h3>
          <p dir="auto">${working}</p>
          ${isHelp ? nothing : html`<p class="lesson-lead">${t('tools.lead')}</p>`}
        </div>
      </details>
      ${isHelp ? HELPS.map(([place, name]) => html`<a href=${`#panel=${place}`} data-panel=${place}>${t(name)}</a>`) : nothing}`, this.element);
    floatPanel(part(this.element, 'details', HTMLDetailsElement), part(this.element, '.lesson-panel', HTMLElement));
  }
}
