/**
 * The Models dialog: the models that this browser keeps, those that the hub has, and a file of the user's. It is loaded
 * when it is first opened. Only opening the hub's list and downloading from it use the network.
 */
import { button, part, ProblemLine } from '../page/dom.js';
import { formatBytes } from '../page/format.js';
import { askToPersist } from '../page/offline.js';
import { withAdded } from '../storage/added_hosts.js';
import { entryOf, readCatalog } from '../storage/hub.js';
import { joinFiles, mustBeModels } from '../storage/model_parts.js';
import { ModelKeeper } from '../storage/model_keeper.js';
import { broughtModels, removeModel } from '../storage/model_store.js';
import { userError } from '../common/user_error.js';
import { advise, progressWords } from './advice.js';
import { AdaptersSection } from './adapters_section.js';
import { HostsSection } from './hosts_section.js';
import { listRow, named } from './list_row.js';

const OF_ADAPTERS = /\.(safetensors|json)$/i; // an adapter may also be a GGUF file, whose header says so

/**
 * @typedef {import('../storage/hub.js').Entry} Entry
 * @typedef {import('../storage/hub.js').Listed|'gone'|'unknown'} Listed
 */

export class ModelsDialog {
  #dialog;
  #parts;
  #problem = new ProblemLine();
  #keeper = new ModelKeeper(() => this.#showProgress());
  #page;
  #catalog = /** @type {import('../storage/hub.js').Catalog|null} */ (null);
  #listed = /** @type {Map<string, Listed>} */ (new Map()); // by the entry's name
  #asking = false;
  #hosts;
  #adapters;
  #kept;

  /**
   * @param {HTMLDialogElement} dialog
   * @param {{running: () => {chosen: string|File[]|null, measured: {tokS: number, bytes: number}|null},
   *   check: (files: File[]) => Promise<void>, use: (chosen: string|File[]|null) => void,
   *   adapters: import('./adapters.js').Adapters}} page see models_menu.js
   */
  constructor(dialog, page) {
    this.#dialog = dialog;
    this.#page = page;
    const find = (name) => part(dialog, `.models-${name}`, HTMLElement);
    this.#parts = {
      advice: find('advice'), kept: find('kept'), adding: find('adding'), hub: part(dialog, 'details', HTMLDetailsElement), offered: find('offered'),
      asking: find('asking'), progress: find('progress'), words: find('progress-words'),
      bar: part(dialog, '.models-progress progress', HTMLProgressElement), room: find('room'),
      file: part(dialog, 'input[type=file]', HTMLInputElement),
    };
    find('problems').append(this.#problem.element);
    this.#hosts = new HostsSection(part(dialog, '.models-hosts', HTMLDetailsElement), (run) => this.#try(run));
    this.#adapters = page.adapters;
    this.#kept = new AdaptersSection(find('adapters'), page.adapters, (run) => this.#try(run));
    page.adapters.onChange(() => dialog.open && this.#kept.show());
    for (const name of ['open', 'add']) find(name).addEventListener('click', () => this.#parts.file.click());
    find('stop').addEventListener('click', () => this.#keeper.stop());
    find('close').addEventListener('click', () => dialog.close());
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

  async open() {
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#problem.say(null);
    await this.#try(() => this.#show());
  }

  /**
   * A model of the user's, in one file or several, or an adapter: copied into the browser's store, and used. A model is used
   * also where there is no room to copy it.
   */
  async openFiles(given) {
    await this.open();
    await this.#try(async () => {
      if (given.some(({ name }) => OF_ADAPTERS.test(name))) return this.#addAdapter(given);
      await mustBeModels(given);
      const { title, files } = joinFiles(given);
      try {
        await this.#page.check(files);
      } catch (error) {
        if (error.name !== 'AdapterFileError') throw error;
        return this.#addAdapter(given);
      }
      askToPersist();
      let chosen;
      try {
        const kept = await this.#keeper.importFiles(files, title);
        chosen = kept?.sha256;
      } catch (error) {
        if (error.name !== 'NoRoomError') throw error;
        chosen = files; // read as they are, this once
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
    this.#dialog.close();
    this.#page.use(chosen);
  }

  async #show() {
    const { chosen } = this.#page.running();
    const brought = await broughtModels();
    const site = listRow({
      title: 'The model of this page', about: 'Comes with Sonata', inUse: chosen === null, use: () => this.#use(null),
    });
    this.#parts.kept.replaceChildren(site, ...brought.map((model) => this.#keptRow(model, chosen)));
    this.#showOffered(brought);
    this.#hosts.show();
    await this.#kept.show();
    const { quota, usage } = await room();
    this.#parts.room.textContent = quota ? `${formatBytes(usage)} used by this page, ${formatBytes(quota - usage)} left` : '';
  }

  #keptRow(model, running) {
    const inUse = model.sha256 === running;
    const size = model.complete ? formatBytes(model.bytes) : `${formatBytes(model.have)} of ${formatBytes(model.bytes)}, not complete`;
    return listRow({
      title: model.title, about: [size, model.licence].filter(Boolean).join(' · '), inUse,
      use: model.complete ? () => this.#use(model.sha256) : null,
      remove: inUse ? null : () => this.#try(async () => {
        if (!await removeModel(model.sha256)) throw userError('BusyError', `${model.title} is just being downloaded or loaded: stop that, or wait for it, then delete it.`);
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
      const problems = /** @type {Error[]} */ ([]);
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
      if (problems.length) throw userError('DownloadError', problems[0].message);
    } finally {
      this.#asking = false;
      this.#parts.asking.hidden = true;
    }
  }

  #showOffered(brought) {
    const catalog = this.#catalog;
    if (!catalog) return;
    const rows = catalog.models.map((entry) => {
      const listed = this.#listed.get(entry.name) ?? 'unknown';
      const there = typeof listed === 'object' ? brought.find(({ sha256 }) => sha256 === listed.sha256) : null;
      return there?.complete ? null : this.#offeredRow(catalog, entry, listed, there?.have ?? 0);
    });
    this.#parts.offered.replaceChildren(...rows.filter((row) => row !== null));
    const offered = catalog.models.flatMap((entry) => {
      const listed = this.#listed.get(entry.name);
      return typeof listed === 'object' ? [{ ...entry, ...listed }] : [];
    });
    const gigabytes = /** @type {any} */ (navigator).deviceMemory ?? 8;
    const advice = advise(this.#page.running().measured, offered, gigabytes * 1e9);
    this.#parts.advice.textContent = advice ?? '';
    this.#parts.advice.hidden = !advice;
  }

  /**
   * @param {import('../storage/hub.js').Catalog} catalog
   * @param {Entry} entry @param {Listed} listed @param {number} have bytes that are here already
   */
  #offeredRow(catalog, entry, listed, have) {
    const size = listed === 'gone' ? 'gone from the hub' : listed === 'unknown' ? 'size unknown' : formatBytes(listed.bytes);
    const row = listRow({ title: entry.title, about: `${size} · ${entry.licence} · ${entry.good_at}` });
    if (typeof listed !== 'object') return row;
    const label = have ? 'Continue' : 'Download';
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
    if (!listed) throw userError('RefusedError', `${new URL(catalog.hub).host} has no ${entry.file} in ${entry.repository}. Check the name.`);
    await this.#download(catalog, entry, listed);
    field.value = '';
  }

  // ---- progress, problems ----

  #showProgress() {
    const { bringing } = this.#keeper;
    this.#parts.progress.hidden = !bringing;
    this.#dialog.toggleAttribute('data-bringing', bringing !== null);
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

/** Bytes that the page may keep and keeps; none where it may keep nothing. */
async function room() {
  try {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    return { quota, usage };
  } catch {
    return { quota: 0, usage: 0 };
  }
}
