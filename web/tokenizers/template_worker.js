/** Runs one chat template at a time, each in new memory: template_cage.js describes its messages, and terminates it. */

const FAILED = 2;
const COSTLY = 3; // of web/kernels/jinja

/** Something that the module refuses, thrown through it. */
class Refused {
  constructor(kind, words) {
    this.kind = kind;
    this.words = words;
  }
}

// In the order of web/kernels/jinja/jinja.h: ALPHA, DIGIT, UPPER, LOWER, PRINTABLE, NUMERIC, DECIMAL.
const TRAITS = [
  /\p{L}/u, /[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]/u, /\p{Uppercase}|\p{Lt}/u,
  /\p{Lowercase}/u, /[^\p{C}\p{Z}]/u, /\p{N}/u,
  /\p{Nd}/u,
];

let compiled = /** @type {WebAssembly.Module|null} */ (null);

function rendered(request, check) {
  const exports = /** @type {any} */ (new WebAssembly.Instance(/** @type {WebAssembly.Module} */ (compiled), { env: {
    refuse: (kind, begin, count) => { throw new Refused(kind, new TextDecoder().decode(bytes(begin, count))); },
    traits: (code) => TRAITS.reduce((all, trait, bit) => all | Number(trait.test(String.fromCodePoint(code))) << bit, 0),
    recase: (code, to, out) => {
      const others = Array.from(recased(String.fromCodePoint(code), to), (letter) => letter.codePointAt(0) ?? 0);
      new Uint32Array(exports.memory.buffer, out, others.length).set(others);
      return others.length;
    },
    number_text: (number, out) => new TextEncoder().encodeInto(String(number), bytes(out, 32)).written,
    text_number: (begin, count) => Number(new TextDecoder().decode(bytes(begin, count))),
  } }).exports);
  const bytes = (begin, count) => new Uint8Array(exports.memory.buffer, begin, count);
  const begin = exports.request(request.length);
  bytes(begin, request.length).set(request);
  if (check) {
    exports.check();
    return new Uint8Array();
  }
  const count = exports.render();
  return bytes(exports.output_bytes(), count).slice();
}

/** A letter in lower case (0), upper case (1) or the case that begins a word (2). */
function recased(letter, to) {
  if (to === 0) return letter.toLowerCase();
  const [first, ...others] = letter.toUpperCase();
  return to === 1 ? [first, ...others].join('') : first + others.join('').toLowerCase();
}

self.onmessage = ({ data: { module, request, check } }) => {
  if (module) {
    compiled = module;
    return;
  }
  self.postMessage({ begins: true });
  try {
    const text = rendered(request, check);
    self.postMessage({ text }, [text.buffer]);
  } catch (error) {
    if (error instanceof Refused) self.postMessage({ kind: error.kind, words: error.words });
    else if (error instanceof RangeError) self.postMessage({ kind: COSTLY, words: 'it nests too deep' });
    else self.postMessage({ kind: FAILED, words: 'the renderer came upon a mistake of its own' });
  }
};
