/** The Python of a conversation: its variables, its files, and the packages that it has loaded. */
import { local } from '../common/web_storage.js';
import { userError } from '../common/user_error.js';
import { t } from '../i18n/i18n.js';
import { unpacked } from '../engine/packed_files.js';
import { Interpreter, part } from './interpreter.js';

const AGREED = 'sonata.python'; // packages with their versions that the user agreed to load
const ALIASES = { PIL: 'pillow', dateutil: 'python-dateutil', mpl_toolkits: 'matplotlib', pylab: 'matplotlib' };

/** @typedef {{name: string, version: string, file: string, bytes: number, sha256: string, needs?: string[]}} Package */
/** @typedef {import('./interpreter.js').Output} Output */

let listing = /** @type {Promise<Package[]>|null} */ (null);

export class ChatPython {
  #python = /** @type {Interpreter|null} */ (null);
  #files = new Set(); // ids of those that it has
  #packages = new Set(); // names
  #wheels = /** @type {Uint8Array<ArrayBuffer>[]} */ ([]);
  #isStopped = false; // by the user, before or while the code runs
  #page;

  /** @param {import('./opener.js').Page} page */
  constructor(page) {
    this.#page = page;
  }

  /**
   * Run code on the files of the conversation.
   * @param {string} code
   * @param {{onOutput: (output: Output) => void, agree: (packages: Package[]) => Promise<boolean>}} asks agree: whether to load
   *   these packages
   * @returns {Promise<Output[]|null>} null if the user did not agree. Rejects with a sentence if Python cannot start
   */
  async run(code, { onOutput, agree }) {
    const python = await this.prepare(code, agree);
    if (!python) return null;
    const outputs = /** @type {Output[]} */ ([]);
    const add = (output) => {
      outputs.push(output);
      onOutput(output);
    };
    if (this.#isStopped) add({ type: 'error', kind: '', message: '', lines: [], reason: 'stopped' });
    else await python.run(code, add);
    return outputs;
  }

  /**
   * Start Python unless it runs, with the conversation's files and the packages that code imports.
   * @param {string} code @param {(packages: Package[]) => Promise<boolean>} agree
   * @returns {Promise<Interpreter|null>} null if the user did not agree. Rejects with a sentence if it cannot start
   */
  async prepare(code, agree) {
    this.#isStopped = false;
    const python = await this.#ready();
    await this.#putFiles(python);
    return await this.#load(python, await python.needs(code), agree) ? python : null;
  }

  /**
   * Install a wheel of pure Python, also into each later Python of this conversation. @param {Uint8Array<ArrayBuffer>} wheel
   * @returns {Promise<string>} as of Interpreter.installWheel
   */
  async installWheel(wheel) {
    const why = await (await this.#ready()).installWheel(wheel.slice());
    if (!why) this.#wheels.push(wheel);
    return why;
  }

  /** A package that a run lacked. @param {Output[]} outputs @returns {Promise<string|null>} */
  async lacked(outputs) {
    const failure = outputs.find(({ type }) => type === 'error');
    if (failure?.type !== 'error' || !/Error$/.test(failure.kind) || !/Import|Module/.test(failure.kind)) return null;
    const names = (await packages()).map(({ name }) => name).filter((name) => !this.#packages.has(name));
    return names.find((name) => new RegExp(`\\b${name}\\b`).test(failure.message)) ?? null;
  }

  stop() {
    this.#isStopped = true;
    this.#python?.stop();
  }

  /** @param {string} name of a file that code wrote */
  async read(name) {
    if (!this.#python?.isAlive) throw userError('PythonError', t('python.fileGone', { name }));
    return this.#python.read(name);
  }

  end() {
    this.#python?.end();
  }

  async #ready() {
    if (this.#python?.isAlive) return this.#python;
    this.#files.clear();
    this.#packages.clear();
    const python = await Interpreter.start();
    for (const wheel of this.#wheels) await python.installWheel(wheel.slice());
    return this.#python = python;
  }

  async #putFiles(python) {
    const { id } = this.#page.chat(), { files } = this.#page.engine();
    const attached = id === null ? [] : await files.files({ chat: id });
    for (const file of attached.filter((one) => !this.#files.has(one.id))) {
      await python.put(file.name, new TextEncoder().encode(await files.text({ id: file.id })));
      this.#files.add(file.id);
    }
  }

  /** @param {Interpreter} python @param {string[]} imported */
  async #load(python, imported, agree) {
    const wanted = imported.map((name) => ALIASES[name] ?? name);
    const listed = wanted.some((name) => name !== 'numpy') ? await packages() : [];
    const found = listed.filter(({ name }) => wanted.includes(name));
    const names = new Set(found.flatMap(({ name, needs = [] }) => [name, ...needs]));
    const missing = listed.filter(({ name }) => names.has(name) && !this.#packages.has(name));
    const agreed = new Set(JSON.parse(local.getItem(AGREED) ?? '[]'));
    const asked = missing.filter((one) => !agreed.has(labelOf(one)));
    if (asked.length && !await agree(asked)) return false;
    if (asked.length) local.setItem(AGREED, JSON.stringify([...agreed, ...asked.map(labelOf)]));
    const needsNumpy = wanted.includes('numpy') || missing.length > 0;
    if (needsNumpy && !this.#packages.has('numpy')) {
      const parts = ['pyodide/packages.packed', 'interpreter/numpy_rest.packed'];
      await python.install(await Promise.all(parts.map(async (path) => unpacked(new Response(await part(path))))));
      this.#packages.add('numpy');
    }
    if (missing.length) await python.install(await Promise.all(missing.map(packageOf)));
    for (const { name } of missing) this.#packages.add(name);
    return true;
  }
}

/** Load packages of the site without asking: small ones, for a file. @param {Interpreter} python @param {string[]} names */
export async function loadPackages(python, names) {
  const wanted = (await packages()).filter(({ name }) => names.includes(name));
  await python.install(await Promise.all(wanted.map(packageOf)));
}

const labelOf = ({ name, version }) => `${name} ${version}`;

/** @returns {Promise<Package[]>} those that the site has */
function packages() {
  listing ??= part('interpreter/packages.json').then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  listing.catch(() => { listing = null; });
  return listing;
}

/** @param {Package} of @returns {Promise<Uint8Array<ArrayBuffer>>} a zip */
async function packageOf({ name, file, sha256 }) {
  const bytes = await part(`interpreter/packages/${file}`);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  if (found !== sha256) throw userError('PythonError', t('python.wrongPackage', { name }));
  return unpacked(new Response(bytes));
}
