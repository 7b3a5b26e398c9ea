/**
 * Starts the worker in which the user's Python runs, and hands it its port and its files.
 *
 * That worker comes from a data: address, so its origin is its own: no storage of this site, no channel, no lock can be reached
 * from it. It inherits this script's policy (app/server/headers.py): it connects to nothing. Decision 0116 says more.
 */

/** Runs in the other worker. Its code comes with the first message. */
const BEGIN = `onmessage = async ({ data: { port, files } }) => {
  onmessage = null;
  const address = (bytes) => URL.createObjectURL(new Blob([bytes], { type: 'text/javascript' }));
  const { begin } = await import(address(files.worker));
  begin(port, files, address);
};`;
const ADDRESS = `data:text/javascript,${encodeURIComponent(BEGIN)}`;

/** @type {any} */
const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy('sonata', { createScriptURL: () => ADDRESS });

onmessage = ({ data: { port, files } }) => {
  const worker = new Worker(policy ? policy.createScriptURL('') : ADDRESS, { type: 'module', name: 'python' });
  worker.onerror = (event) => {
    event.preventDefault();
    postMessage(String(event.message ?? ''));
  };
  worker.postMessage({ port, files }, [port, ...Object.values(files).map(({ buffer }) => buffer)]);
};
