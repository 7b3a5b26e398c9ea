/** One of the open tabs learns in idle time; Web Locks choose it, and take the lock back when it closes. */
import { webLocks } from '../common/browser_parts.js';

const NAME = 'sonata-learning';

let end = /** @type {(() => void)|null} */ (null);

/** For app/consolidation/one_learner.py. */
export const oneLearner = {
  /** @returns {Promise<boolean>} true if this tab may learn now; any tab may if the browser has no locks */
  async take() {
    const locks = await webLocks();
    if (!locks) return true;
    return new Promise((resolve) => {
      const held = locks.request(NAME, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        return lock && new Promise((/** @type {(value: void) => void} */ release) => { end = release; });
      });
      held.catch(() => resolve(true));
    });
  },

  release() {
    end?.();
    end = null;
  },
};
