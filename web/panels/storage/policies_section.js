/** Parameters that were learned or chosen. */
import { t } from '../../i18n/i18n.js';
import { element } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';
import { userError } from '../../common/user_error.js';
import { labelled } from '../../common/edit_form.js';
import { RecordList } from '../record_list.js';
import { actions, facts } from '../record_row.js';

const FITS = 100; // characters of a value that is always fully visible

export class PoliciesSection {
  /** @type {import('../../memory/client.js').Memory} */ #memory;
  #list;

  /** @param {import('../../memory/client.js').Memory} memory */
  constructor(memory) {
    this.#memory = memory;
    this.#list = new RecordList({
      texts: 'policies',
      empty: t('policies.empty'),
      load: async ({ offset, limit }) => {
        const policies = await memory.policies();
        return { total: policies.length, items: policies.slice(offset, offset + limit) };
      },
      key: ({ name }) => name,
      render: (policy, row) => this.#render(policy, row),
      remove: (names) => memory.removePolicies({ names }),
    });
    this.element = this.#list.element;
  }

  refresh() {
    return this.#list.refresh();
  }

  #render(policy, row) {
    const { confidence, changed, words } = policy;
    const title = element('p', 'record-title', words.title);
    const value = words.time === null ? words.value : formatDate(words.time);
    if (value) title.append(shownValue(value));
    const edit = words.canEdit ? [row.action(t('records.edit'), () => this.#edit(policy, row))] : [];
    return [
      title,
      facts(words.about || null, t('records.certain', { share: formatShare(confidence) }), words.by, changed ? formatDate(changed) : null),
      actions(...edit, row.deleteAction(t('policies.sure', { deletion: words.deletion }), words.deletion)),
    ];
  }

  #edit({ name, value, words }, row) {
    const control = controlOf(value);
    row.edit([labelled(words.title, control)], () => this.#memory.editPolicy({ name, value: valueOf(control, value) }));
  }
}

function controlOf(value) {
  if (typeof value === 'boolean') {
    const select = element('select');
    for (const choice of [true, false]) select.append(new Option(t(`policies.${choice}`), String(choice), false, choice === value));
    return select;
  }
  const input = element('input');
  if (typeof value === 'number') Object.assign(input, { type: 'number', step: 'any', required: true });
  input.value = Array.isArray(value) ? value.join(', ') : value;
  return input;
}

/** The typed value, with the policy's type. */
function valueOf(control, before) {
  const typed = control.value.trim();
  if (typeof before === 'boolean') return typed === 'true';
  if (typeof before === 'number') return Number(typed);
  if (!Array.isArray(before)) return typed;
  const numbers = typed.split(/[\s,]+/).filter(Boolean).map(Number);
  if (numbers.some((number) => !Number.isFinite(number))) {
    throw userError('ValueError', t('policies.typeNumbers'));
  }
  return numbers;
}

function shownValue(value) {
  const shown = element('code', 'policy-value', value);
  if ((shown.textContent ?? '').length > FITS) shown.tabIndex = 0; // it scrolls, also by keys
  return shown;
}
