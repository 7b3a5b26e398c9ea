/**
 * AES-256-GCM by WebCrypto, with a key derived from a passphrase; the key cannot be read. py_core/store/encryption.py
 * describes it. One call takes many items: their bytes concatenated, and their lengths.
 */
import { userError } from '../common/user_error.js';
import { message } from '../common/message.js';
const NONCE_BYTES = 12;

export async function deriveCipher(passphrase, salt, iterations) {
  if (!globalThis.crypto?.subtle) {
    throw userError('Error', message('memory.no-encryption', 'This page cannot encrypt: open it by https, or from localhost.'));
  }
  const typed = await crypto.subtle.importKey('raw', passphrase, 'PBKDF2', false, ['deriveKey']);
  const derivation = { name: 'PBKDF2', hash: 'SHA-256', salt, iterations };
  const key = await crypto.subtle.deriveKey(derivation, typed, { name: 'AES-GCM', length: 256 }, false, [
    'encrypt',
    'decrypt',
  ]);
  return new Cipher(key);
}

class Cipher {
  constructor(key) {
    this.key = key;
  }

  seal(data, lengths, contexts, contextLengths) {
    return each(data, lengths, contexts, contextLengths, async (plain, additionalData) => {
      const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
      const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData }, this.key, plain);
      return [iv, new Uint8Array(sealed)];
    });
  }

  /** Rejects with an OperationError if an item was not sealed with this key and context. */
  open(data, lengths, contexts, contextLengths) {
    return each(data, lengths, contexts, contextLengths, async (sealed, additionalData) => {
      const iv = sealed.subarray(0, NONCE_BYTES);
      const rest = sealed.subarray(NONCE_BYTES);
      return [new Uint8Array(await crypto.subtle.decrypt({ name: 'AES-GCM', iv, additionalData }, this.key, rest))];
    });
  }
}

async function each(data, lengths, contexts, contextLengths, work) {
  const items = split(data, lengths), bound = split(contexts, contextLengths);
  const parts = (await Promise.all(items.map((item, index) => work(item, bound[index])))).flat();
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

function split(data, lengths) {
  let at = 0;
  return Array.from(lengths, (length) => data.subarray(at, (at += length)));
}
