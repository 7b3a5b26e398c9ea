/** Parameters that were learned or chosen. */
import { html, nothing } from '../../vendor/lit-html/lit-html.js';
import { t } from '../../i18n/i18n.js';
import { button } from '../../common/dom.js';
import { formatDate, formatShare } from '../../common/format.js';
import { userError } from '../../common/user_error.js';
import { labelled } from '../../common/edit_form.js';
import { RecordList } from '../record_list.js';
import { facts } from '../record_row.js';

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
    const value = words.time === null ? words.value : formatDate(words.time);
    return html`
      <p class="record-title">${words.title}${value ? shownValue(value) : nothing}</p>
      ${facts(words.about || null, t('records.certain', { share: formatShare(confidence) }), words.by, changed ? formatDate(changed) : null)}
      <div class="record-actions">
        ${words.canEdit ? button(t('records.edit'), 'quiet', () => this.#edit(policy, row)) : nothing}
        ${row.deleteAction(t('policies.sure', { deletion: words.deletion }), words.deletion)}
      </div>`;
  }

  #edit({ name, value, words }, row) {
    const save = (typed) => this.#memory.editPolicy({ name, value: valueOf(typed.value, value) });
    row.edit(labelled(words.title, controlOf(value)), save);
  }
}

function controlOf(value) {
  if (typeof value === 'boolean') {
    return html`<select name="value">${[true, false].map((choice) => html`
      <option value=${String(choice)} ?selected=${choice === value}>${t(`policies.${choice}`)}</option>`)}</select>`;
  }
  if (typeof value === 'number') return html`<input name="value" type="number" step="any" required .value=${String(value)}>`;
  return html`<input name="value" .value=${Array.isArray(value) ? value.join(', ') : value}>`;
}

/** The typed value, with the policy's type. */
function valueOf(text, before) {
  const typed = text.trim();
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
  const isLong = String(value).length > FITS; // it scrolls, also by keys
  return html`<code class="policy-value" tabindex=${isLong ? 0 : nothing}>${value}</code>`;
}
