/** The first look at an attached table, above the message box: columns, first rows, and questions that fit. No model takes part. */
import { html, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';

/**
 * @param {import('../protocol_calls.js').TableLook} look
 * @param {{ask: (text: string) => void, close: () => void}} does
 * @returns {HTMLElement}
 */
export function tableLook({ name, columns, rows, row_count: count, column_count: width, questions }, { ask, close }) {
  const section = element('section', 'table-look');
  section.setAttribute('aria-label', t('look.title', { name }));
  render(html`
    <header><p><strong>${name}</strong> <span>${t('look.rows', { count })}, ${t('look.columns', { count: width })}</span></p>
      ${iconButton('x', t('look.close'), close)}</header>
    <div class="table-box" tabindex="0" role="group" aria-label=${t('look.rowsOf', { name })}><table>
      <thead><tr>${columns.map((column) => html`<th scope="col" data-kind=${column.kind}>${column.name} <small>${t(`look.kind_${column.kind}`)}</small></th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell, at) => html`<td data-kind=${columns[at].kind}>${cell}</td>`)}</tr>`)}</tbody>
    </table></div>
    <div class="look-questions">${questions.map(({ form, ...names }) => {
      const question = t(`look.ask_${form}`, names);
      return button(question, 'quiet', () => ask(question));
    })}</div>`, section);
  return section;
}
