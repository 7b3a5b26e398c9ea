/**
 * Brings the tabs of the site together, in a SharedWorker: hands a tab's port over to the tab that runs the model, and
 * knows nothing of what goes through it. It forgets nothing that matters when it ends: tabs ask until they are answered.
 */
const scope = /** @type {SharedWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const leaders = /** @type {Map<string, MessagePort>} */ (new Map()); // by the key of what they run (model_tabs.js)

scope.onconnect = ({ ports: [tab] }) => {
  tab.onmessage = ({ data, ports }) => {
    if (!data) return;
    tab.postMessage({ kind: 'heard' });
    if (data.kind === 'lead') leaders.set(data.key, tab);
    else leaders.get(data.key)?.postMessage(data, [...ports]);
  };
};
