/** A model file from the network, from any byte on, and checked piece by piece. Errors are sentences for the user. */
import { userError } from '../common/user_error.js';
import { english, message } from '../common/message.js';
import { fetchAnywhere } from './other_sites.js';
import { checkHost, checkRedirect, DISCREET } from './model_hosts.js';
import { placed } from './model_parts.js';

const BLOB_PIECE = 4 << 20; // bytes that are read at once

/**
 * @param {string} url
 * @param {{signal?: AbortSignal, from?: number, cache?: RequestCache, hosts?: string[]|null}} [options] `from`: the first byte
 *   wanted; `hosts`: the allowed hosts (model_hosts.js), null for any
 * @returns {Promise<{size: number|null, likely: number|null, version: string, chunks: AsyncGenerator<Uint8Array>}>} `size` of
 *   the whole file if it is known, `likely` if only the server states it; `version` tells the file from another one at the same
 *   address
 */
export async function openDownload(url, { signal, from = 0, cache = 'default', hosts = null } = {}) {
  const response = await ask(url, hosts, { signal, cache, headers: from ? { Range: `bytes=${from}-` } : {} });
  if (response.status === 416) throw truncated(from);
  const { headers } = response;
  const begun = response.status === 206 ? from : 0; // a server without ranges sends the whole file again
  const length = headers.get('Content-Encoding') ? null : headers.get('Content-Length');
  const likely = length ? begun + Number(length) : null;
  return {
    // Another origin does not reveal that it compressed its answer; its length is then that of the compressed bytes.
    size: new URL(response.url).origin === location.origin ? likely : null,
    likely,
    version: ['ETag', 'Last-Modified', 'Content-Length'].map((name) => headers.get(name)).join(),
    chunks: chunksOf(response.body, from - begun),
  };
}

/**
 * Several files, read as one file in which they follow each other.
 * @param {string[]} urls
 * @param {{signal?: AbortSignal, hosts?: string[]|null}} options
 * @returns {Promise<import('../storage/model_source.js').Opened>}
 */
export async function openDownloads(urls, { signal, hosts }) {
  const sizes = await Promise.all(urls.map(async (url) => {
    // With a range, a browser asks for the file uncompressed: compressed, its length would differ.
    const headers = { Range: 'bytes=0-' }, name = url.split('/').at(-1) ?? url;
    const length = (await ask(url, hosts, { signal, method: 'HEAD', headers })).headers.get('Content-Length');
    if (!length) throw userError('Error', message('download.no-size', 'The server does not say how large {name} is. Download all parts, then open them in Settings, Model.', { name }));
    return { name, bytes: Number(length) };
  }));
  const first = await openDownload(urls[0], { signal, hosts });
  const chunks = async function* () {
    for (const [index, url] of urls.entries()) {
      const { chunks } = index ? await openDownload(url, { signal, hosts }) : first;
      yield* asLongAsTold(chunks, sizes[index]);
    }
  };
  const size = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    size,
    likely: size,
    version: first.version,
    chunks: chunks(),
    parts: placed(sizes),
    async head(index, nbytes) {
      const response = await ask(urls[index], hosts, { signal, headers: { Range: `bytes=0-${nbytes - 1}` } });
      return beginningOf(chunksOf(response.body, 0), nbytes);
    },
  };
}

/** @returns {Promise<import('./other_sites.js').Answer>} Throws a userError if there is no answer, or an error status. */
async function ask(url, hosts, options) {
  if (hosts) checkHost(url, hosts);
  let response;
  try {
    response = await fetchAnywhere(url, { ...options, ...DISCREET });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw userError('Error', message('download.no-connection', 'The model could not be downloaded: there is no connection to the server. Check the network, then load again.'));
  }
  if (hosts) checkRedirect(response, url, hosts);
  if (response.ok || response.status === 416) return response;
  throw userError('Error', message('download.not-there', 'The model file {url} is not on the server (HTTP {code}). Check the address, or run build.py again on the server.', { url, code: response.status }));
}

/** Chunks of a part. Throws if its length is not what its server said, because that would shift all that follow. */
async function* asLongAsTold(chunks, { name, bytes }) {
  let received = 0;
  for await (const chunk of chunks) {
    received += chunk.length;
    if (received <= bytes) yield chunk;
    else break;
  }
  if (received !== bytes) throw userError('Error', message('download.other-length', '{name} does not have the length that its server announced ({bytes} bytes). Download all parts, then open them in Settings, Model.', { name, bytes }));
}

/** The first n bytes of chunks, or all if there are fewer. */
async function beginningOf(chunks, nbytes) {
  const bytes = new Uint8Array(nbytes);
  let filled = 0;
  for await (const chunk of chunks) {
    const part = chunk.subarray(0, nbytes - filled);
    bytes.set(part, filled);
    filled += part.length;
    if (filled === nbytes) break;
  }
  return bytes.subarray(0, filled);
}

/** A file's pieces; the next one is read while the reader works on the current one. */
export async function* blobPieces(blob, signal) {
  const read = (at) => blob.slice(at, at + BLOB_PIECE).arrayBuffer();
  let next = read(0);
  for (let at = 0; at < blob.size; at += BLOB_PIECE) {
    signal.throwIfAborted();
    const piece = await next;
    if (at + BLOB_PIECE < blob.size) (next = read(at + BLOB_PIECE)).catch(() => {}); // awaited above, if the reader continues
    yield new Uint8Array(piece);
  }
}

/** The server's chunks without the first `skipped` bytes. */
async function* chunksOf(body, skipped) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(explain);
      if (done) return;
      if (skipped < value.length) yield value.subarray(skipped);
      skipped = Math.max(0, skipped - value.length);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function explain(error) {
  if (error.name === 'AbortError') throw error;
  throw userError('Error', message('download.lost', 'The connection was lost while the model was downloading. Check the network, then load again.'));
}

/**
 * Chunks of any size -> whole pieces with the right checksums.
 * @param {AsyncIterable<Uint8Array>} chunks from the beginning of piece `index` on
 * @param {{bytes: number, pieces: {bytes: number, sha256: string[]}}} model the size of the file, and of its pieces (all
 *   but the last), and their checksums
 * @param {number} index
 */
export async function* wholePieces(chunks, model, index = 0) {
  let piece = new Uint8Array(pieceBytes(model, index));
  let filled = 0;
  for await (let chunk of chunks) {
    while (chunk.length > 0) {
      const part = chunk.subarray(0, piece.length - filled);
      piece.set(part, filled);
      filled += part.length;
      chunk = chunk.subarray(part.length);
      if (filled < piece.length) break;
      if (!await matches(piece, model.pieces.sha256[index])) throw new DamagedError();
      yield piece;
      index += 1;
      if (index === model.pieces.sha256.length) return;
      piece = new Uint8Array(pieceBytes(model, index));
      filled = 0;
    }
  }
  throw truncated(index * model.pieces.bytes + filled);
}

/** Bytes of one of the file's pieces. */
export function pieceBytes({ bytes, pieces }, index) {
  return Math.min(pieces.bytes, bytes - index * pieces.bytes);
}

/** True if bytes have this checksum, in hexadecimal digits. */
export async function matches(bytes, sha256) {
  return await hexOf(bytes) === sha256;
}

/** The checksum of bytes, in hexadecimal digits. */
export async function hexOf(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

const DAMAGED = message('download.damaged', 'The model file was damaged on its way or on the server: its checksum is wrong. Load again; if that does not help, the file on the server must be replaced.');

export class DamagedError extends Error {
  said = DAMAGED;

  constructor() {
    super(english(DAMAGED));
  }
}

/** The Error for a file that ends too early. */
export function truncated(received) {
  const megabytes = (received / 1e6).toFixed(1);
  return userError('Error', message('download.truncated', 'The model file ends after {size} MB, before it is complete: the download broke off or the file is truncated. Load again; if that does not help, the file on the server must be replaced.', { size: megabytes }));
}
