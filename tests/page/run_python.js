// In the page: runPython(source) has python_worker.js run it. Given to Playwright's `evaluate`.
() => {
  const worker = new Worker('./python_worker.js', { type: 'module' });
  globalThis.runPython = (source) => new Promise((resolve, reject) => {
    worker.onerror = (event) => reject(new Error(event.message));
    worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.value));
    worker.postMessage(source);
  });
}
