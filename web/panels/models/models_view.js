/**
 * The models of Settings, Model: those that this browser keeps, those that the hub has, the user's own file, and adapters. Only
 * opening the hub's list and downloading from it use the network.
 */
import { html, render } from '../../vendor/lit-html/lit-html.js';
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
import { HostsSection } from './hosts_section.js';
import { listRow, named } from './list_row.js';

const OF_ADAPTERS = /\.(safetensors|json)$|^adapter_model\.bin$/i; // an adapter may also be a GGUF file, whose header says so

/**
 * @typedef {import('../../downloads/hub.js').Entry} Entry
 * @typedef {import('../../downloads/hub.js').Listed|'gone'|'unknown'} Listed
 */

export class ModelsView {
  element = element('section', 'models');
  #parts;
  #problem = new ProblemLine();
  #keeper = new ModelKeeper(() => this.#showProgress());
  #page;
  #catalog = /** @type {import('../../downloads/hub.js').Catalog|null} */ (null);
  #listed = /** @type {Map<string, Listed>} */ (new Map()); // keyed by the entry's name
  #site = /** @type {Awaited<ReturnType<typeof siteModel>>|null} */ (null);
  #asking = false;
  #hosts;
  #adapters;
  #kept;

  /** @param {import('./models.js').Models} page */
  constructor(page) {
    this.#page = page;
    const root = this.element;
    root.id = 'models';
    root.setAttribute('aria-labelledby', 'models-title');
    render(skeleton(), root);
    const find = (name) => part(root, `.models-${name}`, HTMLElement);
    this.#parts = {
      advice: find('advice'), kept: find('kept'), adding: find('adding'), hub: part(root, '.models-hub', HTMLDetailsElement), offered: find('offered'),
      asking: find('asking'), unreachable: find('unreachable'), progress: find('progress'), words: find('progress-words'),
      bar: part(root, '.models-progress progress', HTMLProgressElement), room: find('room'),
      file: part(root, 'input[type=file]', HTMLInputElement),
    };
    find('problems').append(this.#problem.element);
    this.#hosts = new HostsSection(part(root, '.models-hosts', HTMLDetailsElement), (run) => this.#try(run));
    this.#adapters = page.adapters;
    this.#kept = new AdaptersSection(find('adapters'), page.adapters, (run) => this.#try(run));
    page.adapters.onChange(() => this.#isSeen && this.#kept.show());
    for (const name of ['open', 'add']) find(name).addEventListener('click', () => this.#parts.file.click());
    find('stop').addEventListener('click', () => this.#keeper.stop());
    this.#parts.file.addEventListener('change', () => {
      const files = [...this.#parts.file.files ?? []];
      this.#parts.file.value = '';
      if (files.length) this.openFiles(files);
    });
    part(this.#parts.hub, 'form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      this.#try(() => this.#downloadNamed(part(this.#parts.hub, 'input', HTMLInputElement)));
    });
    this.#parts.hub.addEventListener('toggle', () => this.#parts.hub.open && this.#try(() => this.#askHub()));
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
    this.#parts.adding.hidden = false;
    try {
      await this.#adapters.add(files);
    } finally {
      this.#parts.adding.hidden = true;
    }
  }

  #use(chosen) {
    this.#page.use(chosen);
    part(this.element, '#models-title', HTMLElement).focus(); // the button that was pressed vanishes
    this.refresh();
  }

  async #show() {
    const { chosen } = this.#page;
    const brought = await broughtModels();
    this.#site ??= await siteModel().catch(() => null); // without the site's list its name is unknown
    this.#parts.kept.replaceChildren(this.#siteRow(this.#site, chosen), ...brought.map((model) => this.#keptRow(model, chosen)));
    this.#showOffered(brought);
    this.#hosts.show();
    await this.#kept.show();
    const { quota, usage } = await room();
    this.#parts.room.textContent = quota ? t('models.room', { used: formatBytes(usage), left: formatBytes(quota - usage) }) : '';
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
    if (this.#asking) return;
    this.#asking = true;
    this.#parts.asking.hidden = false;
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
      this.#asking = false;
      this.#parts.asking.hidden = true;
    }
  }

  /** No model is known: there is no network. */
  get #isUnreachable() {
    return this.#listed.size > 0 && [...this.#listed.values()].every((said) => said === 'unknown');
  }

  #showOffered(brought) {
    const catalog = this.#catalog;
    if (!catalog) return;
    const rows = catalog.models.map((entry) => {
      const listed = this.#listed.get(entry.name) ?? 'unknown';
      const there = typeof listed === 'object' ? brought.find(({ sha256 }) => sha256 === listed.sha256) : null;
      return there?.complete ? null : this.#offeredRow(catalog, entry, listed, there?.have ?? 0);
    });
    this.#parts.unreachable.hidden = !this.#isUnreachable;
    if (this.#isUnreachable) this.#parts.unreachable.textContent = t('models.unreachable', { host: new URL(catalog.hub).host });
    this.#parts.offered.hidden = this.#isUnreachable;
    this.#parts.offered.replaceChildren(...rows.filter((row) => row !== null));
    const offered = catalog.models.flatMap((entry) => {
      const listed = this.#listed.get(entry.name);
      return typeof listed === 'object' ? [{ ...entry, ...listed }] : [];
    });
    const gigabytes = /** @type {any} */ (navigator).deviceMemory ?? 8;
    const advice = advise(this.#page.measured, offered, gigabytes * 1e9);
    this.#parts.advice.textContent = advice ?? '';
    this.#parts.advice.hidden = !advice;
  }

  /**
   * @param {import('../../downloads/hub.js').Catalog} catalog
   * @param {Entry} entry @param {Listed} listed @param {number} have bytes that are stored already
   */
  #offeredRow(catalog, entry, listed, have) {
    const size = listed === 'gone' ? t('models.gone') : listed === 'unknown' ? t('models.sizeUnknown') : formatBytes(listed.bytes);
    const row = listRow({ title: entry.title, about: `${size} · ${entry.licence} · ${entry.good_at}` });
    if (typeof listed !== 'object') return row;
    const label = t(have ? 'models.continue' : 'models.download');
    const get = button(label, 'quiet', () => this.#try(() => this.#download(catalog, entry, listed)));
    part(row, '.models-row-actions', HTMLElement).append(named(get, `${label} ${entry.title}`));
    return row;
  }

  async #download(catalog, entry, listed) {
    askToPersist();
    if (await this.#keeper.download(withAdded(catalog), entry, listed)) this.#problem.say(null);
    await this.#show();
  }

  /** A file of the hub that is not in the list. */
  async #downloadNamed(field) {
    const catalog = (this.#catalog ??= await readCatalog());
    const entry = entryOf(catalog, field.value);
    const listed = await this.#keeper.ask(withAdded(catalog), entry);
    if (!listed) throw userError('RefusedError', t('models.notThere', { host: new URL(catalog.hub).host, file: entry.file, repository: entry.repository }));
    await this.#download(catalog, entry, listed);
    field.value = '';
  }

  // ---- progress, problems ----

  #showProgress() {
    const { bringing } = this.#keeper;
    this.#parts.progress.hidden = !bringing;
    this.element.toggleAttribute('data-bringing', bringing !== null);
    if (!bringing) return;
    this.#parts.words.textContent = bringing.total ? `${bringing.title}: ${progressWords(bringing)}` : bringing.title;
    if (bringing.total) this.#parts.bar.value = bringing.done / bringing.total;
    else this.#parts.bar.removeAttribute('value');
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

/** Its elements; the contents of the lists come later. */
function skeleton() {
  return html`
    <h3 id="models-title" tabindex="-1">${t('models.title')}</h3>
    <p class="panel-lead">${t('models.about')}</p>
    <p class="models-advice" hidden></p>
    <ul class="models-kept" aria-label=${t('models.kept')}></ul>
    <div class="models-actions">
      <button class="models-open quiet" type="button">${t('models.open')}</button>
      <p class="models-room"></p>
      <input type="file" multiple aria-label=${t('models.fileLabel')} hidden>
    </div>
    <details class="models-hub">
      <summary>${t('models.hub')}</summary>
      <p class="models-privacy">${t('models.privacy')}</p>
      <p class="models-asking" role="status" hidden>${t('models.asking')}</p>
      <p class="models-unreachable" role="status" hidden></p>
      <ul class="models-offered" aria-label=${t('models.offered')}></ul>
      <form>
        <label for="models-named">${t('models.named')}</label>
        <input id="models-named" type="text" placeholder=${t('models.namedExample')} autocomplete="off" autocapitalize="off" spellcheck="false" required>
        <button class="quiet" type="submit">${t('models.download')}</button>
      </form>
    </details>
    <details class="models-hosts">
      <summary>${t('models.hosts')}</summary>
      <ul aria-label=${t('models.hostList')}></ul>
      <form>
        <label for="models-host">${t('models.host')}</label>
        <input id="models-host" type="text" placeholder=${t('models.hostExample')} autocomplete="off" autocapitalize="off" spellcheck="false" required>
        <button class="quiet" type="submit">${t('models.allow')}</button>
      </form>
    </details>
    <section class="models-adapters" aria-labelledby="adapters-title">
      <h3 id="adapters-title">${t('models.adapters')}</h3>
      <p class="panel-lead">${t('models.adaptersAbout')}</p>
      <ul aria-label=${t('models.adapters')}></ul>
      <p class="models-adding" role="status" hidden>${t('models.adding')}</p>
      <button class="models-add quiet" type="button">${t('models.add')}</button>
    </section>
    <div class="models-state">
      <div class="models-problems"></div>
      <div class="models-progress" hidden>
        <p class="models-progress-words" id="models-progress"></p>
        <progress aria-labelledby="models-progress" max="1" value="0"></progress>
        <button class="models-stop quiet" type="button">${t('models.stop')}</button>
      </div>
    </div>`;
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
