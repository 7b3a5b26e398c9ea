// A GPU device whose objects are known by integer handles. With compute_passes.js this is the only JavaScript that runs for
// each token: Python compiles a model into lists of dispatches once, and then each step is one call, submit([ids]), which
// replays them. py_core/backends/webgpu/host.py says what each method promises.

import { encodeLists, profileLists } from './compute_passes.js';
import { describeAdapter, findAdapter, openDevice } from './adapter.js';
import { PipelineCompiler } from './pipeline_compiler.js';

const UPLOAD_CHUNK = 4 << 20;
const NEWS_MS = 500;

/** The device of an adapter, or null if there is no adapter. */
export async function createExecutor(adapter) {
  adapter ??= await findAdapter();
  if (!adapter) return null;
  return new GpuExecutor(adapter, await openDevice(adapter));
}

function wholeWords(bytes) {
  if (bytes.length % 4 === 0) return bytes;
  const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  padded.set(bytes);
  return padded;
}

class GpuExecutor {
  #device;
  #objects = new Map();  // handle -> GPUBuffer | kernel {pipeline, layout, compiled} | recorded list
  #compiler;
  #next = 1;
  #staging = [];         // mappable buffers that are free
  #waiting;              // the write that `upload` sent last

  /** Called when a lost device is about to be replaced. */
  onReopen = () => {};

  constructor(adapter, device) {
    this.#begin(adapter, device);
  }

  #begin(adapter, device) {
    this.#device = device;
    this.#objects.clear();
    this.#staging = [];
    this.#compiler = new PipelineCompiler(device);
    this.#waiting = undefined;
    this.adapterInfo = describeAdapter(adapter, device);
    this.limits = device.limits;
    this.lostMessage = null;
    this.lost = device.lost.then((lost) => {
      if (device === this.#device) this.lostMessage = lost.message || lost.reason || 'unknown reason';
    });
    this.#watch();
  }

  /**
   * Replace the lost device. This needs a new adapter, because an adapter gives only one device. Returns false if there is
   * none.
   */
  async reopen() {
    this.onReopen();
    this.#device.destroy();
    const adapter = await findAdapter();
    if (!adapter) return false;
    this.#begin(adapter, await openDevice(adapter));
    return true;
  }

  /** True if the device is lost. A call may fail because of that a moment before the browser reports it. */
  async isLost() {
    await Promise.race([this.lost, new Promise((resolve) => setTimeout(resolve, NEWS_MS))]);
    return this.lostMessage !== null;
  }

  createBuffer(size, label) {
    const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
    return this.#keep(this.#device.createBuffer({ size, label, usage: STORAGE | COPY_DST | COPY_SRC }));
  }

  /** @returns {Object<string, number>} bytes of the existing buffers, by label */
  bufferBytes() {
    const found = /** @type {Object<string, number>} */ ({});
    for (const one of this.#objects.values()) {
      if (one instanceof GPUBuffer) found[one.label] = (found[one.label] ?? 0) + one.size;
    }
    return found;
  }

  destroyBuffer(handle) {
    this.#objects.get(handle).destroy();
    this.#objects.delete(handle);
  }

  /** data: a Uint8Array; its length is a multiple of 4. */
  write(handle, offset, data) {
    this.#device.queue.writeBuffer(this.#objects.get(handle), offset, data);
  }

  copy(source, sourceOffset, target, targetOffset, nbytes) {
    const encoder = this.#device.createCommandEncoder();
    const [from, to] = [this.#objects.get(source), this.#objects.get(target)];
    encoder.copyBufferToBuffer(from, sourceOffset, to, targetOffset, nbytes);
    this.#device.queue.submit([encoder.finish()]);
  }

  /** Lists that use it may be recorded before it is compiled; the next `check` waits for that. */
  pipeline(code, access, label) {
    return this.#keep(this.#compiler.compile(code, access, label));
  }

  /** words: for each dispatch: pipeline, x, y, z, number of bindings, then (buffer, offset, size) of each. */
  record(words) {
    const steps = [];
    for (let at = 0; at < words.length;) {
      const [handle, x, y, z, count] = words.subarray(at, at + 5);
      const kernel = this.#objects.get(handle);
      const entries = Array.from({ length: count }, (_, binding) => {
        const [buffer, offset, size] = words.subarray(at + 5 + 3 * binding);
        return { binding, resource: { buffer: this.#objects.get(buffer), offset, size } };
      });
      const group = this.#device.createBindGroup({ layout: kernel.layout, entries });
      steps.push({ kernel, group, x, y, z });
      at += 5 + 3 * count;
    }
    return this.#keep(steps);
  }

  forget(handle) { this.#objects.delete(handle); }

  submit(handles) {
    const encoder = this.#device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encodeLists(pass, handles.map((handle) => this.#objects.get(handle)));
    pass.end();
    this.#device.queue.submit([encoder.finish()]);
  }

  /** Seconds that each list takes, run times[i] times in a pass of its own; undefined if the GPU has no timestamps. */
  async profile(handles, times) {
    const refused = await this.#compiler.finish();
    if (refused) throw new Error(refused);
    return profileLists(this.#device, handles.map((handle) => this.#objects.get(handle)), times);
  }

  /** Returns a Uint8Array of its own. Several reads may be under way. */
  async read(handle, offset, nbytes) {
    const device = this.#device;
    const at = this.#staging.findIndex((buffer) => buffer.size >= nbytes);
    const staging = at >= 0 ? this.#staging.splice(at, 1)[0] : device.createBuffer({
      size: Math.max(256, nbytes), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.#objects.get(handle), offset, staging, 0, nbytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ, 0, nbytes);
    const data = new Uint8Array(staging.getMappedRange(0, nbytes)).slice();
    staging.unmap();
    if (device === this.#device && this.#staging.length < 8) this.#staging.push(staging);
    else staging.destroy();
    return data;
  }

  /** segments: (file offset, bytes, buffer, offset, then) of each, in the file's order; stream: a WeightStream. */
  async upload(stream, segments) {
    const following = new Set(segments.filter((_, at) => at % 5 === 4 && segments[at]));
    const steps = [...following].flatMap((list) => this.#objects.get(list));
    await Promise.all(steps.map(({ kernel }) => kernel.compiled));
    if (steps.some(({ kernel }) => !kernel.pipeline)) return;  // `check` says why
    const room = new ArrayBuffer(UPLOAD_CHUNK); // one for all pieces: writeBuffer copies at once
    for (let at = 0; at < segments.length; at += 5) {
      const [fileOffset, nbytes, buffer, offset, then] = segments.subarray(at, at + 5);
      for (let done = 0; done < nbytes; done += UPLOAD_CHUNK) {
        const piece = await stream.read(fileOffset + done, Math.min(UPLOAD_CHUNK, nbytes - done), room);
        if (this.lostMessage) throw new Error(this.lostMessage);
        this.#device.queue.writeBuffer(this.#objects.get(buffer), offset + done, wholeWords(piece));
        if (then) this.submit([then]);
        // Data from OPFS or a cache arrives faster than the GPU takes it, so only one piece may wait.
        await this.#waiting;
        this.#waiting = this.#device.queue.onSubmittedWorkDone();
      }
    }
    await this.#waiting;
  }

  /** The errors of the device since the last check, or null. */
  async check() {
    const refused = await this.#compiler.finish();
    const errors = await Promise.all(['a', 'b', 'c'].map(() => this.#device.popErrorScope()));
    this.#watch();
    return refused ?? errors.find(Boolean)?.message ?? null;
  }

  destroy() {
    this.#device.destroy();
  }

  #watch() {
    for (const filter of ['validation', 'out-of-memory', 'internal']) this.#device.pushErrorScope(filter);
  }

  #keep(object) {
    this.#objects.set(this.#next, object);
    return this.#next++;
  }
}
