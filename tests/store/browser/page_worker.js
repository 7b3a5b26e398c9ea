/** The worker of the tests' page: Pyodide with Sonata's packages, and tests/store/browser/in_page.py in it. Served by page.py. */
import { deriveCipher } from './memory/encryption.js';
import { memoryStore } from './memory/indexeddb.js';
import { bootPython } from './engine/python_runtime.js';
import { loadHnswKernel } from './routing/hnsw_kernel.js';

let call; // in_page.call

self.onmessage = async ({ data: { id, source, name, argument } }) => {
  try {
    let value = null;
    if (source) {
      const pyodide = await bootPython();
      pyodide.globals.set('memory_store', memoryStore);
      pyodide.globals.set('derive_cipher', deriveCipher);
      pyodide.globals.set('report', (text) => self.postMessage({ report: text }));
      pyodide.globals.set('hnsw_exports', await loadHnswKernel(pyodide));
      pyodide.runPython(source);
      call = pyodide.globals.get('call');
    } else {
      value = await call(name, argument);
    }
    self.postMessage({ id, value });
  } catch (error) {
    self.postMessage({ id, error: `${error.name}: ${error.message}` });
  }
};
