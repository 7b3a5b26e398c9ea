/** Runs in a worker that page_memory.py inspects: finds the memories of its WASM modules, and asks Python. */
const memories = [];
let python = null;

function note({ exports }) {
  if (exports.memory instanceof WebAssembly.Memory) memories.push(exports.memory);
  if (exports.PyRun_SimpleString || exports.PyRun_SimpleStringFlags) python = exports;
}

for (const name of ['instantiate', 'instantiateStreaming']) {
  const whole = WebAssembly[name];
  WebAssembly[name] = async (...given) => {
    const made = await whole.apply(WebAssembly, given);
    note(made.instance ?? made);
    return made;
  };
}
WebAssembly.Instance = class extends WebAssembly.Instance {
  constructor(...given) {
    super(...given);
    note(this);
  }
};
WebAssembly.Memory = class extends WebAssembly.Memory {
  constructor(...given) {
    super(...given);
    memories.push(this);
  }
};

globalThis.pageMemory = {
  /** [bytes, true if other workers share it] of each memory, also of memories that are otherwise unused. */
  sizes() {
    const there = new Set(memories.map(({ buffer }) => buffer));
    return [...there].map((buffer) => [buffer.byteLength, buffer instanceof SharedArrayBuffer]);
  },

  /** Return what `source` leaves in `js.globalThis.pythonHolds`; null without Python. */
  ask(source) {
    if (!python) return null;
    const bytes = new TextEncoder().encode(`${source}\0`);
    const at = python.malloc(bytes.length);
    new Uint8Array(python.memory.buffer).set(bytes, at);
    const failed = python.PyRun_SimpleString ? python.PyRun_SimpleString(at) : python.PyRun_SimpleStringFlags(at, 0);
    python.free(at);
    if (failed) throw new Error('Python has not answered');
    return globalThis.pythonHolds;
  },
};
