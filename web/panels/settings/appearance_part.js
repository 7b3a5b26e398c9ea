/** Settings, Appearance: light or dark, the size of the text, the language. */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { formatBytes } from '../../common/format.js';
import { live } from '../../vendor/lit-html/directives/live.js';
import { chooseLanguage, chosenLanguage, LANGUAGES, t } from '../../i18n/i18n.js';
import { chooseTextSize, chosenTextSize, TEXT_SIZES } from '../../shell/text_size.js';
import { chooseMultilingual, multilingualBytes, usesMultilingual } from '../../shell/multilingual.js';
import { chosenTheme, chooseTheme } from '../../shell/theme.js';

export class AppearancePart {
  #root;
  #bytes = 0; // of the multilingual embedder, if the site has it

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
  }

  show() {
    this.#draw();
    multilingualBytes().then((bytes) => { this.#bytes = bytes; this.#draw(); });
  }

  hide() {}

  #draw() {
    const choose = (run) => (value) => { run(value); this.#draw(); };
    render(html`
      <form class="settings-form" @submit=${(event) => event.preventDefault()}>
        ${choices('theme', t('settings.theme'), t('settings.themeAbout'), [
          ['', t('settings.theme_system')], ['light', t('settings.theme_light')], ['dark', t('settings.theme_dark')],
        ], chosenTheme() ?? '', choose((value) => chooseTheme(value || null)))}
        ${choices('text', t('settings.text'), t('settings.textAbout'), TEXT_SIZES.map((size) => [size, t(`settings.text_${size}`)]), chosenTextSize(),
          choose(chooseTextSize))}
        <label class="field settings-number">
          <span>${t('settings.language')}</span>
          <select aria-describedby="language-about" .value=${live(chosenLanguage() ?? '')} @change=${(event) => {
            chooseLanguage(event.target.value || null);
            location.reload();
          }}>
            <option value="" .selected=${chosenLanguage() === null}>${t('settings.languageOfBrowser')}</option>
            ${Object.entries(LANGUAGES).map(([code, name]) => html`
              <option value=${code} lang=${code} .selected=${chosenLanguage() === code}>${name}</option>`)}
          </select>
          <small id="language-about">${t('settings.languageAbout')}</small>
        </label>
        ${this.#bytes ? this.#multilingual() : nothing}
      </form>`, this.#root);
  }

  #multilingual() {
    const options = [['', t('settings.meanings_english')], ['yes', t('settings.meanings_multilingual', { size: formatBytes(this.#bytes) })]];
    return choices('meanings', t('settings.meanings'), t('settings.meaningsAbout'), options, usesMultilingual() ? 'yes' : '', (value) => {
      chooseMultilingual(value === 'yes');
      location.reload();
    });
  }
}

/**
 * A choice of a few options, side by side. @param {string} about what it does @param {string[][]} options value and label
 * @param {(value: string) => void} choose
 */
function choices(name, title, about, options, chosen, choose) {
  return html`
    <fieldset class="choices segments" aria-describedby=${`${name}-about`}>
      <legend>${title}</legend>
      ${options.map(([value, words]) => html`
        <label class="segment"><input type="radio" name=${name} value=${value} .checked=${live(value === chosen)}
          @change=${() => choose(value)}><span>${words}</span></label>`)}
      <small id=${`${name}-about`}>${about}</small>
    </fieldset>`;
}
