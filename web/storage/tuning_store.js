/**
 * Keeps the measured shapes of GPU kernels (py_core/backends/webgpu/shape_tuning.py), beside the site's other caches.
 * They can be measured again, so it does no harm if the browser keeps nothing, as in a private window.
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
