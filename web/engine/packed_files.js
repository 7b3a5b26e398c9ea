/**
 * Packed files: gzip around a zip whose members are not compressed (app/building/python/archives.py). The members go
 * into Pyodide's file system unchanged, without a copy and without Python.
 */
import { message } from '../common/message.js';
import { fetchFile } from '../common/file_fetch.js';

const ENTRY_BYTES = 46;
const END_BYTES = 22;
const LOCAL_BYTES = 30;

/**
 * @param {string} url
 * @param {(bytes: number) => void} [onBytes] called with how many more bytes have come in
 * @returns {Promise<Uint8Array<ArrayBuffer>>} the content; rejects with a DownloadError
 */
export async function fetchPacked(url, onBytes) {
  return unpacked(new Response(await fetchFile(url, message('part.python', 'A part of Python'), onBytes)));
}

/** @param {Response} packed @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function unpacked(packed) {
  const content = /** @type {ReadableStream} */ (packed.body).pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(content).arrayBuffer());
}

/**
 * Put the members of a zip under a folder.
 * @param {any} files Pyodide's file system
 * @param {string} folder
 * @param {Uint8Array<ArrayBuffer>} zip
 */
export function putFiles(files, folder, zip) {
  const made = new Set([folder]);
  for (const [name, content] of members(zip)) {
    const path = `${folder}/${name}`;
    const parent = path.slice(0, path.lastIndexOf('/'));
    if (!made.has(parent)) {
      files.mkdirTree(parent);
      made.add(parent);
    }
    files.writeFile(path, content, { canOwn: true });
  }
}

/** @param {Uint8Array<ArrayBuffer>} zip @returns {Generator<[string, Uint8Array]>} */
function* members(zip) {
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const end = zip.length - END_BYTES; // there is no comment
  const count = view.getUint16(end + 10, true);
  const decoder = new TextDecoder();
  for (let at = view.getUint32(end + 16, true), left = count; left; left--) {
    const size = view.getUint32(at + 24, true);
    const [nameBytes, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const local = view.getUint32(at + 42, true);
    const name = decoder.decode(zip.subarray(at + ENTRY_BYTES, at + ENTRY_BYTES + nameBytes));
    const start = local + LOCAL_BYTES + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    yield [name, zip.subarray(start, start + size)];
    at += ENTRY_BYTES + nameBytes + extra + comment;
  }
}
