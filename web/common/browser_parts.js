/**
 * Parts that a browser may lack or forbid: with blocked cookies, in some private windows and in plain http. Then even looking
 * at one may throw.
 */

/** @template T @param {() => T} look @returns {NonNullable<T>|null} null if the browser lacks or forbids it */
export function partOf(look) {
  try {
    return look() ?? null;
  } catch {
    return null;
  }
}

let asked = /** @type {Promise<LockManager|null>|null} */ (null);

/** Web Locks, tried once to see that they work. @returns {Promise<LockManager|null>} */
export function webLocks() {
  asked ??= (async () => {
    const { locks } = navigator;
    await locks.request(`sonata-try:${Math.random()}`, () => {});
    return locks;
  })().catch(() => null);
  return asked;
}

/**
 * A channel to the other tabs; if the browser has none, an object that does nothing.
 * @param {string} name
 * @returns {Pick<BroadcastChannel, 'postMessage'|'close'|'onmessage'>}
 */
export function openChannel(name) {
  return partOf(() => new BroadcastChannel(name)) ?? { postMessage() {}, close() {}, onmessage: null };
}
