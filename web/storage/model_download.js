/** A model file from the network, from any byte on, and checked piece by piece. Errors are sentences for the user. */

/**
 * @param {string} url
 * @param {{signal?: AbortSignal, from?: number, cache?: RequestCache}} [options] `from`: the first byte wanted
 * @returns {Promise<{size: number|null, version: string, chunks: AsyncGenerator<Uint8Array>}>} `size` of the whole file
 *   where the server tells it; `version` tells the file from another one at the same address
 */
export async function openDownload(url, { signal, from = 0, cache = 'default' } = {}) {
  let response;
  try {
    response = await fetch(url, { signal, cache, headers: from ? { Range: `bytes=${from}-` } : {} });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The model could not be downloaded: there is no connection to the server. Check the network, then load again.');
  }
  if (response.status === 416) throw truncated(from);
  if (!response.ok) {
    throw new Error(`The model file ${url} is not on the server (HTTP ${response.status}). Check the address, or run build.py again on the server.`);
  }
  const { headers } = response;
  const begun = response.status === 206 ? from : 0; // a server without ranges sends all of it again
  const length = headers.get('Content-Encoding') ? null : headers.get('Content-Length');
  return {
    size: length ? begun + Number(length) : null,
    version: ['ETag', 'Last-Modified', 'Content-Length'].map((name) => headers.get(name)).join(),
    chunks: chunksOf(response.body, from - begun),
  };
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
  throw new Error('The connection was lost while the model was downloading. Check the network, then load again.');
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

/** Whether bytes have this checksum, in hexadecimal digits. */
export async function matches(bytes, sha256) {
  return await hexOf(bytes) === sha256;
}

/** The checksum of bytes, in hexadecimal digits. */
export async function hexOf(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export class DamagedError extends Error {
  constructor() {
    super('The model file was damaged on its way or on the server: its checksum is wrong. Load again; if that does not help, the file on the server must be replaced.');
  }
}

/** The Error for a file that ends too early. */
export function truncated(received) {
  const megabytes = (received / 1e6).toFixed(1);
  return new Error(`The model file ends after ${megabytes} MB, before it is complete: the download broke off or the file is truncated. Load again; if that does not help, the file on the server must be replaced.`);
}
