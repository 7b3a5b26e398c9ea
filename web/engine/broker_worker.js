/**
 * Connects the tabs of the site, in a SharedWorker: hands a tab's port over to the tab that runs the model, without
 * reading what passes through it. Nothing that matters is lost when it ends: tabs ask until they are answered.
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
