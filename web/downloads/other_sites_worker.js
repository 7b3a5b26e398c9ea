/** Fetches files from other sites and returns them chunk by chunk: other_sites.js says why. */
import * as Comlink from '../vendor/comlink.mjs';

/** @type {Map<number, ReadableStreamDefaultReader<Uint8Array>>} */
const open = new Map();
let last = 0;

Comlink.expose({
  /** @param {string} url @param {RequestInit} options */
  async open(url, options) {
    const response = await fetch(url, options);
    const { status, ok } = response;
    const id = ++last;
    if (response.body) open.set(id, response.body.getReader());
    return { id, status, ok, url: response.url, headers: [...response.headers] };
  },

  /** The next bytes; null at the end. */
  async read(id) {
    const { value } = await open.get(id)?.read() ?? {};
    if (value) return Comlink.transfer(value, [value.buffer]);
    open.delete(id);
    return null;
  },

  async cancel(id) {
    await open.get(id)?.cancel();
    open.delete(id);
  },
});
