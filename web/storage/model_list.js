/** The list of models that the site offers, made by build.py. */
import { userError } from '../common/user_error.js';

/**
 * @returns {Promise<{title: string|null, url: string}>} the model to load, as ModelSource takes it (model_source.js):
 *   `wanted` (a URL, whose title the file itself tells), or the first of models.json, with its size and checksums.
 * Throws a userError.
 */
export async function chooseModel(wanted) {
  if (wanted) return { title: null, url: new URL(wanted, location.href).href };
  const [model] = await readModels();
  const url = new URL(model.url, location.href);
  return { ...model, url: url.href, name: url.pathname.split('/').at(-1) };
}

async function readModels() {
  try {
    const response = await fetch('./models.json');
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const models = await response.json();
    if (!models.length) throw new Error('it is empty');
    return models;
  } catch (cause) {
    throw userError(
      'DownloadError',
      `The list of models could not be loaded (${cause.message}). Check your connection, then load again.`,
    );
  }
}
