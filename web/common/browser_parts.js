/**
 * Parts of the browser that it may lack, or forbid: with blocked cookies, in some private windows and in plain http. Even to
 * look at one may throw then.
 */

/** @template T @param {() => T} look @returns {NonNullable<T>|null} null where the browser has none, or forbids it */
export function partOf(look) {
  try {
    return look() ?? null;
  } catch {
    return null;
  }
}

let asked = /** @type {Promise<LockManager|null>|null} */ (null);

/** Web Locks that were tried. @returns {Promise<LockManager|null>} */
export function webLocks() {
  asked ??= (async () => {
    const { locks } = navigator;
    await locks.request(`sonata-try:${Math.random()}`, () => {});
    return locks;
  })().catch(() => null);
  return asked;
}

/**
 * A channel to the other tabs; where the browser has none, one that reaches nobody.
 * @param {string} name
 * @returns {Pick<BroadcastChannel, 'postMessage'|'close'|'onmessage'>}
 */
export function openChannel(name) {
  return partOf(() => new BroadcastChannel(name)) ?? { postMessage() {}, close() {}, onmessage: null };
}
