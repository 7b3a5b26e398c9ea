// A model file as a forward-only stream from the network: the header is looked at first, the rest flows on in the file's
// order. Errors are sentences for the user.

export class WeightStream {
  #reader;
  #chunks = [];     // received, not yet passed
  #position = 0;    // file offset of the first chunk
  #received = 0;
  #onProgress;

  /** onProgress(received, total) is called as bytes come in. */
  static async open(url, { signal, onProgress = () => {} } = {}) {
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
    return new WeightStream(response, onProgress);
  }

  constructor(response, onProgress) {
    const length = response.headers.get('Content-Length');
    this.size = length && !response.headers.get('Content-Encoding') ? Number(length) : null;
    this.#reader = response.body.getReader();
    this.#onProgress = onProgress;
  }

  /** The first n bytes, or all if there are fewer. Nothing may have been read before. */
  async prefix(n) {
    if (this.#position > 0) throw new Error('prefix comes before read');
    while (this.#received < n && await this.#pull());
    return this.#assemble(Math.min(n, this.#received));
  }

  /** Exactly n bytes from offset on; what lies before offset is gone afterwards. */
  async read(offset, n) {
    if (offset < this.#position) throw new Error(`byte ${offset} has passed already`);
    while (this.#received < offset + n) {
      if (!await this.#pull()) {
        const megabytes = (this.#received / 1e6).toFixed(1);
        throw new Error(`The model file ends after ${megabytes} MB, before it is complete: the download broke off or the file is truncated. Load again; if that does not help, the file on the server must be replaced.`);
      }
    }
    this.#drop(offset);
    const data = this.#assemble(n);
    this.#drop(offset + n);
    return data;
  }

  cancel() { return this.#reader.cancel().catch(() => {}); }

  async #pull() {
    let result;
    try {
      result = await this.#reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error('The connection was lost while the model was downloading. Check the network, then load again.');
    }
    if (result.done) return false;
    this.#chunks.push(result.value);
    this.#received += result.value.length;
    this.#onProgress(this.#received, this.size);
    return true;
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
  }
}
