/**
 * What the address of the page can set, for tests and developers:
 *   ?model=URL          a GGUF file instead of the first one in models.json
 *   ?backend=NAME       auto (default), webgpu or numpy
 *   ?max_tokens=N       the most tokens of one answer
 *   ?patience=SECONDS   how long the engine may be silent before the page says so (default 60)
 */
export function readOptions(search = location.search) {
  const query = new URLSearchParams(search);
  const backend = query.get('backend');
  return {
    modelUrl: query.get('model'),
    backend: ['webgpu', 'numpy'].includes(backend) ? backend : 'auto',
    maxTokens: positive(query.get('max_tokens')),
    patience: positive(query.get('patience')) ?? 60,
  };
}

function positive(text) {
  const value = Number(text);
  return Number.isFinite(value) && value > 0 ? value : null;
}
