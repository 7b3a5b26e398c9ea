/** The settings of an agent: the fields as data, and the difference between two states of them. Python checks the values. */
import { t } from '../../i18n/i18n.js';
import { userError } from '../../common/user_error.js';

/** Fields of py_core/sampling.py, with its defaults. Texts: sampling.NAME, sampling.NAME_hint. */
export const SAMPLING = [
  { name: 'temperature', standard: 0 },
  { name: 'top_k', standard: 0 },
  { name: 'top_p', standard: 1 },
  { name: 'min_p', standard: 0 },
  { name: 'repetition_penalty', standard: 1 },
  { name: 'frequency_penalty', standard: 0 },
  { name: 'presence_penalty', standard: 0 },
  { name: 'penalty_window', standard: 64 },
];
export const MAX_TOKENS = 1024; // for an agent that sets no other value

/** "Recipe helper!" -> "recipe-helper", or "recipe-helper-2" if that is taken: an id that Python accepts. */
export function freeId(title, taken) {
  const plain = title.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  const base = plain.replace(/[^a-z0-9]+/g, '-').replace(/^[-0-9]+/, '').slice(0, 36).replace(/-$/, '') || 'agent';
  let id = base;
  for (let number = 2; taken.includes(id); number += 1) id = `${base}-${number}`;
  return id;
}

/** The typed text as a number, or `standard` if it is empty. Otherwise throws an error that names the field. */
export function readNumber(text, field, standard) {
  const typed = text.trim().replace(',', '.');
  if (!typed) return standard;
  const number = Number(typed);
  if (Number.isFinite(number)) return number;
  const error = userError('AgentError', t('agents.typeNumber', { example: standard, typed: text.trim() }));
  throw Object.assign(error, { field });
}

/** One request a line; blank lines are ignored. */
export function readExamples(text) {
  return text.split('\n').map((line) => line.trim()).filter(Boolean);
}

/**
 * The fields that differ, and of `sampling` only the values that differ: an unchanged field follows the next version of a
 * shipped agent.
 * @param {any} before as Memory.agents() gives an agent
 * @param {any} after all fields
 */
export function changedFields(before, after) {
  /** @type {Record<string, any>} */
  const changed = {};
  for (const name of ['title', 'definition', 'system_prompt']) {
    if (after[name] !== before[name]) changed[name] = after[name];
  }
  if (after.max_tokens !== (before.max_tokens ?? MAX_TOKENS)) changed.max_tokens = after.max_tokens;
  if (JSON.stringify(after.examples) !== JSON.stringify(before.examples ?? [])) changed.examples = after.examples;
  const sampling = SAMPLING.filter(({ name, standard }) => after.sampling[name] !== (before.sampling?.[name] ?? standard));
  if (sampling.length) changed.sampling = Object.fromEntries(sampling.map(({ name }) => [name, after.sampling[name]]));
  return changed;
}
