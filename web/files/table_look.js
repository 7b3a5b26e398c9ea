/**
 * The look at an attached table, above the message box: columns, first rows, and questions that fit, for which no model is
 * needed; and a field for other questions, which Python answers that the model writes.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { button, element } from '../common/dom.js';
import { iconButton } from '../common/icon.js';
import { t } from '../i18n/i18n.js';

/**
 * @param {import('../protocol_calls.js').TableLook} look
 * @param {{ask: (text: string) => void, analyse: (question: string) => void, close: () => void}} does
 * @param {File[]} sheets the other sheets of a spreadsheet @param {(sheet: File) => void} attach
 * @returns {HTMLElement}
 */
export function tableLook({ name, columns, rows, row_count: count, column_count: width, questions }, { ask, analyse, close }, sheets, attach) {
  const section = element('section', 'table-look');
  section.setAttribute('aria-label', t('look.title', { name }));
  const submit = (event) => {
    event.preventDefault();
    const { question } = event.target.elements;
    if (!question.value.trim()) return question.focus();
    section.dataset.asked = 'true'; // only the field stays: the answer needs the room
    analyse(question.value.trim());
    question.value = '';
  };
  render(html`
    <header><p><strong>${name}</strong> <span>${t('look.rows', { count })}, ${t('look.columns', { count: width })}</span></p>
      ${sheets.length ? html`<select aria-label=${t('look.sheet')} @change=${({ target }) => attach(sheets[target.selectedIndex - 1])}>
        <option>${name}</option>${sheets.map((sheet) => html`<option>${sheet.name}</option>`)}</select>` : nothing}
      ${iconButton('x', t('look.close'), close)}</header>
    <div class="table-box" tabindex="0" role="group" aria-label=${t('look.rowsOf', { name })}><table>
      <thead><tr>${columns.map((column) => html`<th scope="col" data-kind=${column.kind}>${column.name} <small>${t(`look.kind_${column.kind}`)}</small></th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell, at) => html`<td data-kind=${columns[at].kind}>${cell}</td>`)}</tr>`)}</tbody>
    </table></div>
    <div class="look-questions">${questions.map(({ form, ...names }) => {
      const question = t(`look.ask_${form}`, names);
      return button(question, 'quiet', () => ask(question));
    })}</div>
    <form class="look-analysis" @submit=${submit}>
      <input name="question" autocomplete="off" placeholder=${t('look.analysisHint')} aria-label=${t('look.analysisQuestion', { name })}>
      <button class="primary" title=${t('look.analysisAbout')}>${t('look.analyse')}</button>
    </form>`, section);
  return section;
}
