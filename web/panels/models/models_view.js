/**
 * The models of Settings, Model: those that this browser keeps, those that the hub has, the user's own file, and adapters. Only
 * opening the hub's list and downloading from it use the network.
 */
import { html, nothing, render } from '../../vendor/lit-html/lit-html.js';
import { repeat } from '../../vendor/lit-html/directives/repeat.js';
import { t } from '../../i18n/i18n.js';
import { button, element, part, ProblemLine } from '../../common/dom.js';
import { formatBytes } from '../../common/format.js';
import { askToPersist } from '../../shell/offline.js';
import { withAdded } from '../../downloads/added_hosts.js';
import { entryOf, readCatalog } from '../../downloads/hub.js';
import { siteModel } from '../../storage/model_list.js';
import { joinFiles, mustBeModels } from '../../downloads/model_parts.js';
import { ModelKeeper } from '../../downloads/model_keeper.js';
import { broughtModels, removeModel } from '../../storage/model_store.js';
import { userError } from '../../common/user_error.js';
import { advise, progressWords } from './advice.js';
import { AdaptersSection } from './adapters_section.js';
import { addressForm, HostsSection } from './hosts_section.js';
import { listRow, named } from './list_row.js';

const OF_ADAPTERS = /\.(safetensors|json)$|^adapter_model\.bin$/i; // an adapter may also be a GGUF file, whose header says so

/**
 * @typedef {import('../../downloads/hub.js').Entry} Entry
 * @typedef {import('../../downloads/hub.js').Listed|'gone'|'unknown'} Listed
 */

export class ModelsView {
  element = element('section', 'models');
  #problem = new ProblemLine();
  #keeper = new ModelKeeper(() => this.#draw());
  #page;
  #catalog = /** @type {import('../../downloads/hub.js').Catalog|null} */ (null);
  #listed = /** @type {Map<string, Listed>} */ (new Map()); // keyed by the entry's name
  #site = /** @type {Awaited<ReturnType<typeof siteModel>>|null} */ (null);
  #brought = /** @type {Awaited<ReturnType<typeof broughtModels>>} */ ([]);
  #room = { quota: 0, usage: 0 };
  #isThere = false; // the lists are known
  #isAsking = false; // the hub
  #isAdding = false; // an adapter
  #hosts;
  #kept;

  /** @param {import('./models.js').Models} page */
  constructor(page) {
    this.#page = page;
    const draw = () => this.#draw(), tryTo = (run) => this.#try(run);
    this.#hosts = new HostsSection(draw, tryTo);
    this.#kept = new AdaptersSection(page.adapters, draw, tryTo);
    page.adapters.onChange(() => this.#isSeen && this.#kept.show());
    this.element.id = 'models';
    this.element.setAttribute('aria-labelledby', 'models-title');
    this.#draw();
  }

  show() {
    return this.#try(() => this.#show());
  }

  /** Another model runs. A problem stays in view. */
  refresh() {
    this.#show().catch(() => {}); // the lists are unchanged
  }

  get #isSeen() {
    return this.element.checkVisibility();
  }

  /**
   * A model of the user's, in one file or several, or an adapter: copied into the browser's store, and used. A model is used
   * even if there is no room to copy it.
   */
  async openFiles(given) {
    await this.#try(async () => {
      if (given.some(({ name }) => OF_ADAPTERS.test(name))) return this.#addAdapter(given);
      await mustBeModels(given);
      const { stem, files } = joinFiles(given);
      let known;
      try {
        known = await this.#page.check(files, stem);
      } catch (error) {
        if (error.name !== 'AdapterFileError') throw error;
        return this.#addAdapter(given);
      }
      askToPersist();
      let chosen;
      try {
        const kept = await this.#keeper.importFiles(files, known);
        chosen = kept?.sha256;
      } catch (error) {
        if (error.name !== 'NoRoomError') throw error;
        chosen = files; // read directly, this once
      }
      if (chosen) this.#use(chosen);
    });
  }

  async #addAdapter(files) {
    askToPersist();
    this.#isAdding = true;
    this.#draw();
    try {
      await this.#page.adapters.add(files);
    } finally {
      this.#isAdding = false;
      this.#draw();
    }
  }

  #use(chosen) {
    this.#page.use(chosen);
    part(this.element, '#models-title', HTMLElement).focus(); // the button that was pressed vanishes
    this.refresh();
  }

  async #show() {
    this.#brought = await broughtModels();
    this.#site ??= await siteModel().catch(() => null); // without the site's list its name is unknown
    this.#isThere = true;
    this.#draw();
    await this.#kept.show();
    this.#room = await room();
    this.#draw();
  }

  #siteRow(model, running) {
    const known = model ? [t('models.site'), formatBytes(model.bytes), model.licence] : [];
    return listRow({ title: model?.title ?? t('models.site'), about: known.join(' · '), inUse: running === null, use: () => this.#use(null) });
  }

  #keptRow(model, running) {
    const inUse = model.sha256 === running;
    const size = model.complete ? formatBytes(model.bytes) : t('models.incomplete', { have: formatBytes(model.have), all: formatBytes(model.bytes) });
    return listRow({
      title: model.title, about: [size, model.licence].filter(Boolean).join(' · '), inUse,
      use: model.complete ? () => this.#use(model.sha256) : null,
      remove: inUse ? null : () => this.#try(async () => {
        if (!await removeModel(model.sha256)) throw userError('BusyError', t('models.busy', { title: model.title }));
        await this.#show();
      }),
    });
  }

  // ---- the hub ----

  async #askHub() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    this.#draw();
    try {
      const catalog = (this.#catalog ??= await readCatalog());
      const problems = /** @type {(Error & {said?: import('../../common/message.js').Message|string})[]} */ ([]);
      await Promise.all(catalog.models.map(async (entry) => {
        const said = this.#listed.get(entry.name);
        if (said && said !== 'unknown') return;
        try {
          this.#listed.set(entry.name, await this.#keeper.ask(withAdded(catalog), entry) ?? 'gone');
        } catch (error) {
          this.#listed.set(entry.name, 'unknown');
          problems.push(error);
        }
      }));
      await this.#show();
      if (this.#isUnreachable) return;
      if (problems.length) throw userError('DownloadError', problems[0].said ?? problems[0].message);
    } finally {
      this.#isAsking = false;
      this.#draw();
    }
  }

  /** No model is known: there is no network. */
  get #isUnreachable() {
    return this.#listed.size > 0 && [...this.#listed.values()].every((said) => said === 'unknown');
  }

  /** @param {import('../../downloads/hub.js').Catalog} catalog */
  #offered(catalog) {
    return catalog.models.map((entry) => {
      const listed = this.#listed.get(entry.name) ?? 'unknown';
      const there = typeof listed === 'object' ? this.#brought.find(({ sha256 }) => sha256 === listed.sha256) : null;
      return there?.complete ? nothing : this.#offeredRow(catalog, entry, listed, there?.have ?? 0);
    });
  }

  /** @param {import('../../downloads/hub.js').Catalog} catalog */
  #advice(catalog) {
    const offered = catalog.models.flatMap((entry) => {
      const listed = this.#listed.get(entry.name);
      return typeof listed === 'object' ? [{ ...entry, ...listed }] : [];
    });
    const gigabytes = /** @type {any} */ (navigator).deviceMemory ?? 8;
    return advise(this.#page.measured, offered, gigabytes * 1e9);
  }

  /**
   * @param {import('../../downloads/hub.js').Catalog} catalog
   * @param {Entry} entry @param {Listed} listed @param {number} have bytes that are stored already
   */
  #offeredRow(catalog, entry, listed, have) {
    const size = listed === 'gone' ? t('models.gone') : listed === 'unknown' ? t('models.sizeUnknown') : formatBytes(listed.bytes);
    const label = t(have ? 'models.continue' : 'models.download');
    const more = typeof listed === 'object' ? named(label, entry.title, () => this.#try(() => this.#download(catalog, entry, listed))) : nothing;
    return listRow({ title: entry.title, about: `${size} · ${entry.licence} · ${entry.good_at}`, more });
  }

  async #download(catalog, entry, listed) {
    askToPersist();
    if (await this.#keeper.download(withAdded(catalog), entry, listed)) this.#problem.say(null);
    await this.#show();
  }

  /** A file of the hub that is not in the list. @param {HTMLInputElement} field */
  async #downloadNamed(field) {
    const catalog = (this.#catalog ??= await readCatalog());
    const entry = entryOf(catalog, field.value);
    const listed = await this.#keeper.ask(withAdded(catalog), entry);
    if (!listed) throw userError('RefusedError', t('models.notThere', { host: new URL(catalog.hub).host, file: entry.file, repository: entry.repository }));
    await this.#download(catalog, entry, listed);
    field.value = '';
  }

  // ---- its elements ----

  #draw() {
    const { bringing } = this.#keeper, { quota, usage } = this.#room;
    const pick = () => part(this.element, 'input[type=file]', HTMLElement).click();
    const advice = this.#catalog && this.#advice(this.#catalog);
    this.element.toggleAttribute('data-bringing', bringing !== null);
    render(html`
      <h3 id="models-title" tabindex="-1">${t('models.title')}</h3>
      <p class="panel-lead">${t('models.about')}</p>
      <p class="models-advice" ?hidden=${!advice}>${advice ?? ''}</p>
      <ul class="models-kept" aria-label=${t('models.kept')}>${this.#isThere ? this.#keptRows() : nothing}</ul>
      <div class="models-actions">
        ${button(t('models.open'), 'models-open quiet', pick)}
        <p class="models-room">${quota ? t('models.room', { used: formatBytes(usage), left: formatBytes(quota - usage) }) : ''}</p>
        <input type="file" multiple aria-label=${t('models.fileLabel')} hidden @change=${(event) => this.#onFiles(event.target)}>
      </div>
      ${this.#hub()}
      ${this.#hosts.template}
      <section class="models-adapters" aria-labelledby="adapters-title">
        <h3 id="adapters-title">${t('models.adapters')}</h3>
        <p class="panel-lead">${t('models.adaptersAbout')}</p>
        <ul aria-label=${t('models.adapters')}>${this.#kept.rows}</ul>
        <p class="models-adding" role="status" ?hidden=${!this.#isAdding}>${t('models.adding')}</p>
        ${button(t('models.add'), 'models-add quiet', pick)}
      </section>
      <div class="models-state">
        <div class="models-problems">${this.#problem.element}</div>
        <div class="models-progress" ?hidden=${!bringing}>
          <p class="models-progress-words" id="models-progress">${bringing ? wordsOf(bringing) : ''}</p>
          <progress aria-labelledby="models-progress" max="1" value=${bringing?.total ? bringing.done / bringing.total : bringing ? nothing : 0}></progress>
          ${button(t('models.stop'), 'models-stop quiet', () => this.#keeper.stop())}
        </div>
      </div>`, this.element);
  }

  #keptRows() {
    const { chosen } = this.#page;
    return [this.#siteRow(this.#site, chosen), repeat(this.#brought, ({ sha256 }) => sha256, (model) => this.#keptRow(model, chosen))];
  }

  #hub() {
    const catalog = this.#catalog, isUnreachable = this.#isUnreachable;
    const ask = (event) => {
      event.preventDefault();
      this.#try(() => this.#downloadNamed(event.target.querySelector('input')));
    };
    return html`
      <details class="models-hub" @toggle=${(event) => event.target.open && this.#try(() => this.#askHub())}>
        <summary>${t('models.hub')}</summary>
        <p class="models-privacy">${t('models.privacy')}</p>
        <p class="models-asking" role="status" ?hidden=${!this.#isAsking}>${t('models.asking')}</p>
        <p class="models-unreachable" role="status" ?hidden=${!isUnreachable}>${
          catalog && isUnreachable ? t('models.unreachable', { host: new URL(catalog.hub).host }) : ''}</p>
        <ul class="models-offered" aria-label=${t('models.offered')} ?hidden=${isUnreachable}>${catalog ? this.#offered(catalog) : nothing}</ul>
        ${addressForm('models-named', t('models.named'), t('models.namedExample'), t('models.download'), ask)}
      </details>`;
  }

  /** @param {HTMLInputElement} field */
  #onFiles(field) {
    const files = [...field.files ?? []];
    field.value = '';
    if (files.length) this.openFiles(files);
  }

  async #try(run) {
    this.#problem.say(null);
    try {
      await run();
    } catch (error) {
      await this.#show().catch(() => {}); // parts have changed
      this.#problem.say(error);
    }
  }
}

/** @param {import('../../downloads/model_keeper.js').Bringing} bringing */
function wordsOf(bringing) {
  return bringing.total ? `${bringing.title}: ${progressWords(bringing)}` : bringing.title;
}

/** The bytes that the page may store, and those that it stores; none if it may store nothing. */
async function room() {
  try {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    return { quota, usage };
  } catch {
    return { quota: 0, usage: 0 };
  }
}
