/** What can be set of an agent: the fields as data, and what changed between two states of them. Python checks the values. */
import { userError } from '../common/user_error.js';

/** Fields of py_core/sampling.py, with its defaults. */
export const SAMPLING = [
  { name: 'temperature', title: 'Temperature', standard: 0, hint: '0 always takes the most likely token. 0.7 gives varied answers.' },
  { name: 'top_k', title: 'Top k', standard: 0, hint: 'Choose among this many of the most likely tokens. 0 means all.' },
  { name: 'top_p', title: 'Top p', standard: 1, hint: 'Choose among the most likely tokens that have this total probability. 1 means all.' },
  { name: 'min_p', title: 'Min p', standard: 0, hint: 'Leave out tokens below this share of the highest probability. 0 leaves out none.' },
  { name: 'repetition_penalty', title: 'Repetition penalty', standard: 1, hint: 'Above 1, avoids tokens that were used.' },
  { name: 'frequency_penalty', title: 'Frequency penalty', standard: 0, hint: 'Above 0, avoids tokens that were used often.' },
  { name: 'presence_penalty', title: 'Presence penalty', standard: 0, hint: 'Above 0, avoids tokens that were used at least once.' },
  { name: 'penalty_window', title: 'Penalty window', standard: 64, hint: 'How many of the last tokens the penalties look at, up to 256.' },
];
export const MAX_TOKENS = 1024; // of an agent that says nothing else

/** A new agent's settings. The shipped agents have this penalty, too: without it the model would loop. */
export const NEW_AGENT = { sampling: { frequency_penalty: 0.2 } };

/** "Recipe helper!" -> "recipe-helper": what Python takes for an id, as far as the title allows one. */
export function idFromTitle(title) {
  const plain = title.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  return plain.replace(/[^a-z0-9]+/g, '-').replace(/^[-0-9]+/, '').slice(0, 40).replace(/-+$/, '');
}

/** The typed text as a number, or `standard` if it is empty. Otherwise throws an error that names the field. */
export function readNumber(text, field, standard) {
  const typed = text.trim().replace(',', '.');
  if (!typed) return standard;
  const number = Number(typed);
  if (Number.isFinite(number)) return number;
  const error = userError('AgentError', `Type a number such as ${standard}, not “${text.trim()}”.`);
  throw Object.assign(error, { field });
}

/** One request a line; blank lines are nothing. */
export function readExamples(text) {
  return text.split('\n').map((line) => line.trim()).filter(Boolean);
}

/**
 * The fields that differ, of `sampling` only what differs: what was left alone follows the next version of a shipped agent.
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
