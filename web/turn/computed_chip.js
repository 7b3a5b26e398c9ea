/** The chip of an answer that a tool computed. It names the tool and, when opened, shows the working. No model guessed it. */
import { floatPanel } from '../common/card.js';
import { element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';

/** The panels that an answer about Sonata mentions. */
const HELPS = [['learned/lessons', 'panel.learned'], ['settings/model', 'panel.tab_model'], ['settings/storage', 'panel.tab_storage']];

function panelLink(place, name) {
  const link = element('a', '', name);
  link.href = `#panel=${place}`;
  link.dataset.panel = place; // panel_opener.js opens it
  return link;
}

export class ComputedChip {
  element = element('div', 'lesson computed');

  /** @param {Pick<import('../protocol.js').Computation, 'kind'|'working'>} computation its working is in the language of the question */
  constructor({ kind, working }) {
    const details = element('details', 'lesson-details');
    const isHelp = kind === 'help';
    const chip = element('summary', 'lesson-chip', isHelp ? t('tools.kind_help') : `${t('tools.computed')} · ${t(`tools.kind_${kind}`)}`);
    const panel = element('div', 'lesson-panel');
    const how = Object.assign(element('p', '', working), { dir: 'auto' });
    panel.append(element('h3', '', t(isHelp ? 'tools.kind_help' : 'tools.how')), how);
    if (!isHelp) panel.append(element('p', 'lesson-lead', t('tools.lead')));
    details.append(chip, panel);
    floatPanel(details, panel);
    this.element.append(details);
    if (isHelp) this.element.append(...HELPS.map(([place, name]) => panelLink(place, t(name))));
  }
}
