/** Messages of Python and of workers to a person, in the user's language: docs/develop/errors.md. */
import { filled } from '../common/message.js';

/** @type {Record<string, string>} */
let texts = {};

/** @param {Record<string, string>} catalogue by code */
export function setMessages(catalogue) {
  texts = catalogue;
}

/**
 * @param {import('../common/message.js').Message|string} message a string is as it was stored, or in the language of the page
 * @returns {string} in the language of the page
 */
export function said(message) {
  if (typeof message === 'string') return message;
  const { code, text, values } = message;
  return filled(texts[code] ?? text, values, said);
}

/**
 * What Python gives, once it is said.
 * @template T
 * @typedef {T extends import('../protocol.js').Message ? string : T extends object ? {[K in keyof T]: Said<T[K]>} : T} Said
 */
