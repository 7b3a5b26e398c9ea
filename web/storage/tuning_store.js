/**
 * Keeps the shapes of GPU kernels that were measured (py_core/backends/webgpu/autotune.py), beside the site's other caches.
 * They can be measured again: if the browser keeps nothing, as in a private window, that does no harm.
 */
const CACHE = 'sonata-tuning', KEY = '/tuning.json';

export const tuningStore = {
  async read() {
    try {
      const kept = await (await caches.open(CACHE)).match(KEY);
      return kept ? await kept.text() : '';
    } catch {
      return '';
    }
  },

  async write(text) {
    try {
      await (await caches.open(CACHE)).put(KEY, new Response(text));
    } catch {
      // see above
    }
  },
};
