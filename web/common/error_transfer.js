/** Lets what a user error says cross Comlink with its code. Import it if a worker throws. */
import { transferHandlers } from '../vendor/comlink.mjs';

const plain = /** @type {import('../vendor/comlink.mjs').TransferHandler<any, any>} */ (transferHandlers.get('throw'));

transferHandlers.set('throw', {
  ...plain,
  serialize(/** @type {any} */ thrown) {
    const [sent, transferred] = plain.serialize(thrown);
    if (thrown.value?.said) sent.value.said = thrown.value.said;
    return [sent, transferred];
  },
});
