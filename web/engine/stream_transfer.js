/**
 * Lets async iterables cross Comlink, which cannot proxy them by itself. Import it on both sides.
 *
 * The sender pumps the values into a MessagePort; the receiver gets an EventQueue. When the receiver calls
 * `return` (a `break` out of `for await` does), the sender's iterator is returned too. There is no back-pressure.
 */
import { transferHandlers } from '../vendor/comlink.mjs';
import { EventQueue } from './event_queue.js';

transferHandlers.set('async-iterable', {
  canHandle: (value) => typeof value === 'object' && value !== null && Symbol.asyncIterator in value,

  serialize(/** @type {any} */ iterable) {
    const { port1, port2 } = new MessageChannel();
    const iterator = iterable[Symbol.asyncIterator]();
    port1.onmessage = () => iterator.return?.();
    pump(iterator, port1);
    return [port2, [port2]];
  },

  deserialize(/** @type {any} */ port) {
    const queue = new EventQueue(() => {
      port.postMessage('return');
      port.close();
    });
    port.onmessage = ({ data }) => {
      if ('value' in data) return queue.push(data.value);
      port.close();
      if (data.error) queue.fail(Object.assign(new Error(data.error.message), data.error));
      else queue.end();
    };
    return queue;
  },
});

async function pump(iterator, port) {
  try {
    for (let step = await iterator.next(); !step.done; step = await iterator.next()) {
      port.postMessage({ value: step.value });
    }
    port.postMessage({ end: true });
  } catch (error) {
    const { name, message, stack, said } = /** @type {Error & {said?: unknown}} */ (error instanceof Error ? error : new Error(String(error)));
    port.postMessage({ error: { name, message, stack, said } });
  }
}
