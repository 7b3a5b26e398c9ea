/** The chip of an answer that a tool computed: which tool, and how, when it is opened. No model guessed it. */
import { floatPanel } from '../page/card.js';
import { element } from '../page/dom.js';
import { t } from '../i18n/i18n.js';

export class ComputedChip {
  element = element('div', 'lesson computed');

  /** @param {{kind: string, words: string, working: string}} computed as the event says; working: in the language of the question */
  constructor({ kind, working }) {
    const details = element('details', 'lesson-details');
    const chip = element('summary', 'lesson-chip', `${t('tools.computed')} · ${t(`tools.kind_${kind}`)}`);
    const panel = element('div', 'lesson-panel');
    const how = Object.assign(element('p', '', working), { dir: 'auto' });
    panel.append(element('h3', '', t('tools.how')), how, element('p', 'lesson-lead', t('tools.lead')));
    details.append(chip, panel);
    floatPanel(details, panel);
    this.element.append(details);
  }
}
