// A model file as a forward-only stream from the network: the header is looked at first, the rest flows on in the file's
// order. Bytes are fetched ahead while Python is still starting, and checked piece by piece against the checksums of
// models.json before anybody sees them. Errors are sentences for the user.

const AHEAD = 128 << 20;  // bytes fetched before anybody asks for them

export class WeightStream {
  #chunks = [];      // received and checked, not yet passed
  #position = 0;     // file offset of the first chunk
  #received = 0;
  #wanted = 0;       // file offset that a reader waits for
  #state = { done: false, error: null };
  #waiting = [];     // resolve functions of those who wait for bytes to come in or go out
  #onProgress;
  #reader;
  #open;             // what `open` was given
  #version;          // what tells the file from another one at the same address

  /**
   * pieces: {bytes, sha256: [...]}, checksums of the file's pieces, all but the last of `bytes` bytes.
   * onProgress(received, total) is called as bytes come in.
   */
  static async open(url, { signal, onProgress = () => {}, pieces = null } = {}) {
    let response;
    try {
      response = await fetch(url, { signal });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error('The model could not be downloaded: there is no connection to the server. Check the network, then load again.');
    }
    if (!response.ok) {
      throw new Error(`The model file ${url} is not on the server (HTTP ${response.status}). Check the address, or run build.py again on the server.`);
    }
    return new WeightStream(response, onProgress, pieces, [url, { signal, onProgress, pieces }]);
  }

  constructor(response, onProgress, pieces, open) {
    this.#open = open;
    this.#version = ['ETag', 'Last-Modified', 'Content-Length'].map((name) => response.headers.get(name)).join();
    const length = response.headers.get('Content-Length');
    this.size = length && !response.headers.get('Content-Encoding') ? Number(length) : null;
    this.#reader = response.body.getReader();
    this.#onProgress = onProgress;
    // Without a secure context there is no crypto.subtle.
    this.#pump(globalThis.crypto?.subtle ? pieces : null).then(
      () => this.#finish(null),
      (error) => this.#finish(error),
    );
  }

  /** The same file from its beginning, on a new stream. */
  async again() {
    this.#reader.cancel().catch(() => {});
    const stream = await WeightStream.open(...this.#open);
    if (stream.#version === this.#version) return stream;
    stream.#reader.cancel().catch(() => {});
    throw new Error('The model file on the server has changed since it was loaded. Load again to use the new one.');
  }

  /** The first n bytes, or all if there are fewer. Nothing may have been read before. */
  async prefix(n) {
    if (this.#position > 0) throw new Error('prefix comes before read');
    await this.#arrived(n);
    return this.#assemble(Math.min(n, this.#received));
  }

  /** Exactly n bytes from offset on; what lies before offset is gone afterwards. */
  async read(offset, n) {
    if (offset < this.#position) throw new Error(`byte ${offset} has passed already`);
    await this.#arrived(offset + n);
    if (this.#received < offset + n) {
      const megabytes = (this.#received / 1e6).toFixed(1);
      throw new Error(`The model file ends after ${megabytes} MB, before it is complete: the download broke off or the file is truncated. Load again; if that does not help, the file on the server must be replaced.`);
    }
    this.#drop(offset);
    const data = this.#assemble(n);
    this.#drop(offset + n);
    return data;
  }

  /** Bring bytes in, not further ahead of the reader than AHEAD. */
  async #pump(pieces) {
    let piece = [], size = 0;
    for (let index = 0; ;) {
      const { done, value } = await this.#next();
      if (!pieces) {
        if (done) return;
        this.#take(value);
      } else {
        if (value) {
          piece.push(value);
          size += value.length;
        }
        while (size >= pieces.bytes || (done && size > 0)) {
          const whole = new Uint8Array(await new Blob(piece).arrayBuffer());
          const ready = whole.subarray(0, pieces.bytes);
          // A last piece that comes too early is a truncated file: read() says so.
          if (!done || index === pieces.sha256.length - 1) await check(ready, pieces.sha256[index]);
          index++;
          this.#take(ready);
          piece = [whole.subarray(pieces.bytes)];
          size = piece[0].length;
        }
        if (done) return;
      }
      while (this.#received >= Math.max(this.#wanted, this.#position + AHEAD)) await this.#change();
    }
  }

  async #next() {
    try {
      return await this.#reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error('The connection was lost while the model was downloading. Check the network, then load again.');
    }
  }

  #take(bytes) {
    this.#chunks.push(bytes);
    this.#received += bytes.length;
    this.#onProgress(this.#received, this.size);
    this.#changed();
  }

  #finish(error) {
    this.#state = { done: true, error };
    this.#changed();
  }

  /** Resolves once the file is there up to an offset, or has ended before. */
  async #arrived(offset) {
    this.#wanted = offset;
    this.#changed();
    while (this.#received < offset) {
      if (this.#state.error) throw this.#state.error;
      if (this.#state.done) return;
      await this.#change();
    }
  }

  #change() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #changed() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** The first n bytes at hand, copied together. */
  #assemble(n) {
    const data = new Uint8Array(n);
    let filled = 0;
    for (const chunk of this.#chunks) {
      if (filled === n) break;
      const part = chunk.subarray(0, n - filled);
      data.set(part, filled);
      filled += part.length;
    }
    return data;
  }

  /** Forget what lies before a file offset. */
  #drop(offset) {
    let surplus = offset - this.#position;
    while (surplus > 0) {
      const chunk = this.#chunks[0];
      if (chunk.length > surplus) this.#chunks[0] = chunk.subarray(surplus);
      else this.#chunks.shift();
      surplus -= Math.min(chunk.length, surplus);
    }
    this.#position = offset;
    this.#changed();
  }
}

async function check(bytes, expected) {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  if (found !== expected) {
    throw new Error('The model file was damaged on its way or on the server: its checksum is wrong. Load again; if that does not help, the file on the server must be replaced.');
  }
}
