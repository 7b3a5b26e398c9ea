/**
 * A model in several files, as llama.cpp's gguf-split names them (NAME-00001-of-00003.gguf). Sonata takes them as one: their
 * bytes follow each other, and the sha256 of the model is that of the parts' sha256 (hexadecimal digits), one after the other.
 */
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';
import { isGguf } from '../files/split_models.js';

/** A part, with the byte of the model where it begins. @typedef {{name: string, start: number}} Part */

/** @returns {{names: string[], stem: string}|null} the names of all parts; null if the file is not a part */
export function partsOf(name) {
  const [, stem, number, digits] = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(name) ?? [];
  const count = Number(digits);
  if (!(count > 1 && Number(number) >= 1 && Number(number) <= count)) return null;
  return { stem, names: Array.from({ length: count }, (_, index) => `${stem}-${String(index + 1).padStart(5, '0')}-of-${digits}.gguf`) };
}

/** A file's name without the number that a browser gives a second download: "x-00001-of-00003 (1).gguf". */
const plain = ({ name }) => name.replace(/ ?\(\d+\)(?=\.gguf$)/i, '');

/**
 * The files of one model, in their order. A file that is not a part is a model by itself.
 * @param {File[]} files in any order
 * @returns {{stem: string, files: File[]}} Throws a userError that names the missing part or the surplus file.
 */
export function joinFiles(files) {
  const parts = partsOf(plain(files[0]));
  if (!parts) {
    if (files.length > 1) throw userError('FilesError', message('parts.another-file', '{one} and {first} are different files. Choose one model at a time: one file, or all parts of one.', { one: files[1].name, first: files[0].name }));
    return { stem: files[0].name.replace(/\.gguf$/i, ''), files };
  }
  const stranger = files.find((file) => !parts.names.includes(plain(file)));
  if (stranger) throw userError('FilesError', message('parts.stranger', '{one} is not a part of {stem}. Choose the parts of one model at a time.', { one: stranger.name, stem: parts.stem }));
  const found = parts.names.map((name) => files.find((file) => plain(file) === name));
  const missing = parts.names.filter((_, index) => !found[index]);
  if (missing.length) {
    const [first] = missing, number = parts.names.indexOf(first) + 1;
    const name = missing.length > 1 ? message('parts.more', '{first} (and {count} more)', { first, count: missing.length - 1 }) : first;
    throw userError('FilesError', message('parts.missing', 'Part {number} of {parts} of this model is missing: {first}. Choose all parts at once.', { number, parts: parts.names.length, first: name }));
  }
  return { stem: parts.stem, files: /** @type {File[]} */ (found) };
}

/** Throws a userError if a file does not begin like a GGUF, before more of it is read. @param {File[]} files */
export async function mustBeModels(files) {
  for (const file of files) {
    if (await isGguf(file)) continue;
    throw userError('FilesError', message('parts.no-gguf', '{name} is not a GGUF file (it does not begin with GGUF). Choose a model file that ends in .gguf.', { name: file.name }));
  }
}

/** Where each of several files begins in the model. @param {{name: string, bytes: number}[]} files @returns {Part[]} */
export function placed(files) {
  let start = 0;
  return files.map(({ name, bytes }) => {
    const part = { name, start };
    start += bytes;
    return part;
  });
}

/** Computes the sha256 of a model from those of its files. @param {string[]} sums hexadecimal digits */
export async function sumOfParts(sums) {
  if (sums.length === 1) return sums[0];
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(sums.join('')));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
