/**
 * The model that the page's address names (?model=URL). Anybody can make such a link, and the model answers under Sonata's
 * name, so a model from another site is named, and the user is asked, before anything of it is fetched. A yes counts for this
 * address in this tab.
 */
import { t } from '../../i18n/i18n.js';
import { changeAddress } from '../../chat/address.js';
import { ask } from '../../common/confirmation.js';
import { readOptions } from '../../shell/options.js';
import { allowedHosts, ownHost } from '../../downloads/added_hosts.js';
import { isAllowed } from '../../downloads/model_hosts.js';
import { agreeToModel, isAgreedModel } from '../../storage/model_choice.js';
import { userError } from '../../common/user_error.js';
import { cut } from '../../common/cut.js';


export class AddressModel {
  /** True while the user is being asked: then nothing else happens on the page. */
  isAsking = false;
  #asked = /** @type {Promise<boolean>|null} */ (null);
  #notices;

  /** @param {import('../../shell/notices.js').Notices} notices */
  constructor(notices) {
    this.#notices = notices;
  }

  /** True if the address names a model. */
  get isNamed() {
    return readOptions().modelUrl !== null;
  }

  /**
   * @returns {Promise<{title: null, url: string, hosts: string[]}|null>} as in model_list.js; null if the address names none,
   *   or the user declined it. Throws a userError if it is not an address.
   */
  async model() {
    const text = readOptions().modelUrl;
    if (!text) return null;
    if (!URL.canParse(text, location.href)) {
      throw userError('AddressError', t('models.noAddress', { text: cut(text) }));
    }
    const { origin, protocol, href: url } = new URL(text, location.href);
    if (origin === location.origin && protocol === location.protocol) return { title: null, url, hosts: [ownHost()] };
    const hosts = await allowedHosts();
    // A host that is not on the list is refused by name, before anything is fetched (model_hosts.js): no need to ask.
    if (!isAllowed(url, hosts) || isAgreedModel(url)) return { title: null, url, hosts };
    this.#asked ??= this.#ask(new URL(url)).finally(() => (this.#asked = null));
    if (await this.#asked) return { title: null, url, hosts };
    this.forget();
    return null;
  }

  /** The address no longer names a model. */
  forget() {
    const url = new URL(location.href);
    url.searchParams.delete('model');
    changeAddress(url);
  }

  /** @param {URL} url */
  async #ask(url) {
    // A page that embeds this one in a frame could cover the question and direct a click to its button.
    if (window.top !== window) return this.#decline(url, 'models.inFrame');
    const file = cut(decoded(url.pathname.split('/').at(-1) ?? ''));
    this.isAsking = true;
    try {
      const isWanted = await ask({
        title: t('models.askTitle', { host: url.host }),
        paragraphs: [
          t('models.askWhat', { file: file || t('models.aFile'), host: url.host }),
          t('models.askWhy'),
        ],
        yes: t('models.askYes'), no: t('models.askNo'), isUnexpected: true,
      });
      if (!isWanted) return this.#decline(url, 'models.asWished');
      agreeToModel(url.href);
      return true;
    } finally {
      this.isAsking = false;
    }
  }

  /** @param {URL} url @param {string} why the key of the sentence */
  #decline(url, why) {
    this.#notices.say('address', t(why, { host: url.host }));
    return false;
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a literal %
  }
}
