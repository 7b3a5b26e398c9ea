/** The list of models that the site offers, made by build.py. */
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';
import { joinFiles } from '../downloads/model_parts.js';
import { readFacts } from './model_store.js';

const LIST = new URL('../models.json', import.meta.url);

/**
 * @param {string|File[]|null} chosen the sha256 of a model that the user brought, or files to read as they are
 * @returns {Promise<{title: string|null, stem?: string, url?: string, blobs?: File[], bytes?: number, sha256?: string,
 *   missing?: boolean}>} the model to load, as ModelSource takes it (model_source.js): the chosen one, or the first of
 *   models.json, with its size and checksums; `missing`: the chosen model is not kept any more. Throws a userError.
 */
export async function chooseModel(chosen) {
  if (Array.isArray(chosen)) {
    const { stem, files } = joinFiles(chosen);
    return { title: null, stem, blobs: files, bytes: files.reduce((sum, { size }) => sum + size, 0) };
  }
  const facts = chosen ? await readFacts(chosen) : null;
  if (facts?.pieces) return facts;
  const [model] = await readModels();
  const url = new URL(model.url, LIST);
  return { ...model, url: url.href, name: url.pathname.split('/').at(-1), missing: chosen !== null };
}

/**
 * The site's own model: its title for people, and its size. @returns {Promise<{title: string, bytes: number, licence:
 * string}>}
 */
export async function siteModel() {
  const [model] = await readModels();
  return model;
}

async function readModels() {
  try {
    const response = await fetch(LIST);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const models = await response.json();
    if (!models.length) throw new Error('it is empty');
    return models;
  } catch (cause) {
    throw userError(
      'DownloadError',
      message('store.no-list', 'The list of models could not be loaded ({why}). Check your connection, then load again.', { why: cause.message }),
    );
  }
}
