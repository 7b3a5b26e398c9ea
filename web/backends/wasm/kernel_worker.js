/**
 * One worker of the pool (kernel_pool.js). It handles its messages in order, but for `fill`, which waits for a file; else only
 * a kernel's barrier makes it wait. It is a classic script without imports, so that the pool can restart it without the network.
 */
const CONTROL = 1024; // u32[64]; web/kernels/kernels.h has the first of them
const STEPS = 31; // the word that counts worker 0's steps, so that the pool sees its progress
const BUSY = 32; // the word of worker 0 that says that it is in `run`; worker i has BUSY + i
const STACKS = 4096, STACK_BYTES = 65536;
const ABORTED = -2;
const SPIN = 3; // the word that says how long a worker spins at a barrier before it sleeps; 0 is the most (run.c)
const SPIN_AGAIN = 8; // number of runs, of some four steps each, after which long spins are tried again
const EPOCH = 30; // the word that counts the pool's restarts

let memory, kernels, index, runs = 0, dead = false;

const actions = {
  /** memory: the pool's, or null to make one of its own of `pages` to `maximum` pages. */
  start({ module, memory: shared, pages, maximum, worker }) {
    memory = shared ?? new WebAssembly.Memory({ initial: pages, maximum });
    index = worker;
    kernels = new WebAssembly.Instance(module, { env: { memory } }).exports;
    kernels.__stack_pointer.value = STACKS + (index + 1) * STACK_BYTES;
    return kernels.abi();
  },

  /** Grow this worker's own memory to at least this number of pages. Returns false if the browser refuses. */
  grow({ pages }) {
    try {
      const missing = pages - memory.buffer.byteLength / 65536;
      if (missing > 0) memory.grow(missing);
      return true;
    } catch {
      return false;
    }
  },

  write({ address, data, epoch }) {
    if (stale(epoch)) return;
    bytes(address, data.length).set(data);
  },

  read({ address, nbytes }) {
    return bytes(address, nbytes).slice();
  },

  /** Bring bytes of a file, from an offset on, to regions. Returns their checksums, null if they could not be read. */
  async fill({ file, from, regions }) {
    const access = await file.createSyncAccessHandle({ mode: 'read-only' }).catch(() => null);
    let at = from;
    try {
      for (const [address, nbytes] of pairs(regions)) {
        if (access?.read(bytes(address, nbytes), { at }) !== nbytes) return null;
        at += nbytes;
      }
    } catch {
      return null;
    } finally {
      access?.close();
    }
    return actions.checksums({ regions });
  },

  checksums({ regions }) {
    return pairs(regions).map(([address, nbytes]) => BigInt.asUintN(64, kernels.checksum(address, nbytes)).toString(16));
  },

  clear({ regions }) {
    for (const [address, nbytes] of pairs(regions)) bytes(address, nbytes).fill(0);
  },

  repack({ data, staging, job: [format, target, firstRow, rows, columns] }) {
    bytes(staging, data.length).set(data);
    kernels.repack(format, staging, target, firstRow, rows, columns);
    return data; // kept for reuse: garbage of workers stays in memory for long
  },

  run({ program, steps, workers, epoch }) {
    const returned = new Int32Array(steps);
    const control = new Int32Array(memory.buffer, CONTROL, 64);
    Atomics.store(control, BUSY + index, 1);
    try {
      if (stale(epoch)) return returned.fill(ABORTED);
      // Once all spins are short they stay short, because each worker waits for one that is waking up. That halves the speed,
      // even after no other program wants the cores any more. If one still does, six spins become short again, which costs 2 ms
      // in total.
      if (index === 0 && ++runs % SPIN_AGAIN === 0) Atomics.store(control, SPIN, 0);
      for (let step = 0; step < steps; step++) {
        returned[step] = kernels.run(program, index, workers);
        if (returned[step] === ABORTED) break;
        if (index === 0) Atomics.add(control, STEPS, 1);
      }
    } finally {
      Atomics.store(control, BUSY + index, 0);
    }
    return returned;
  },

  /** For tests: never answer again. */
  hang() {
    for (;;);
  },
};

/** True if the pool was restarted after a message was sent: this worker is about to end. */
function stale(epoch) {
  return Atomics.load(new Int32Array(memory.buffer, CONTROL, 64), EPOCH) !== epoch;
}

/** @param {number[]} regions address and bytes of each, in a row */
function pairs(regions) {
  return Array.from({ length: regions.length / 2 }, (_, at) => [regions[2 * at], regions[2 * at + 1]]);
}

/** Looked up each time: the memory may have grown. */
function bytes(address, length) {
  return new Uint8Array(memory.buffer, address, length);
}

self.onmessage = ({ data }) => {
  if (dead) return; // memory cannot be trusted after a trap
  const answer = (value) => data.id && self.postMessage({ id: data.id, value }, value?.buffer ? [value.buffer] : []);
  try {
    const value = actions[data.kind](data);
    if (value instanceof Promise) value.then(answer); // never rejected
    else answer(value);
  } catch (error) {
    dead = true;
    self.postMessage({ died: `${error.name}: ${error.message}` });
  }
};
