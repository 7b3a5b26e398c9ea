// A worker of the page that the build opens (snapshot.py): sends the memory of Python back to its server.
import { makeSnapshot } from './python_runtime.js';

try {
  await fetch('../snapshot', { method: 'POST', body: await makeSnapshot() });
} catch (error) {
  await fetch('../failure', { method: 'POST', body: String(error.stack ?? error) });
}
