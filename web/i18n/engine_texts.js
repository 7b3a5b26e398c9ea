/**
 * What Python says to a person, in the user's language. Python knows English only; where its sentences enter the page
 * `told` looks for them in a table of [English, translated], in which {name} stands for a value. What is not in the table
 * stays as it is.
 */

import { filled } from '../common/message.js';

/** @type {Record<string, string>} */
let texts = {};

/** @param {Record<string, string>} catalogue by code */
export function setMessages(catalogue) {
  texts = catalogue;
}

/**
 * @param {import('../protocol.js').Message|string} message a string is as it was stored, or in the language of the page
 * @returns {string} in the language of the page
 */
export function said(message) {
  if (typeof message === 'string') return told(message);
  const { code, text, values } = message;
  return code in texts ? filled(texts[code], values, said) : told(filled(text, values, said));
}

/**
 * What Python gives, once it is said.
 * @template T
 * @typedef {T extends import('../protocol.js').Message ? string : T extends object ? {[K in keyof T]: Said<T[K]>} : T} Said
 */

/** @typedef {{pattern: RegExp, names: string[], translated: string}} Row */

/** @type {Row[]} */
let rows = [];
const BETWEEN_SENTENCES = /(?<=[.!?]) (?=["“(`]?[\p{Lu}\p{N}])/u;

/** @param {[string, string][]} sentences */
export function setSentences(sentences) {
  const exactFirst = [...sentences].sort(([one], [other]) => literal(other) - literal(one));
  rows = exactFirst.map(([english, translated]) => {
    /** @type {string[]} */
    const names = [];
    const source = english.split(/(\{\w+\})/).map((part) => {
      const name = /^\{(\w+)\}$/.exec(part)?.[1];
      if (name === undefined) return part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
      if (names.includes(name)) return `\\${names.indexOf(name) + 1}`;
      names.push(name);
      return '(.+?)';
    });
    return { pattern: new RegExp(`^${source.join('')}$`, 'su'), names, translated };
  });
}

/**
 * @param {string} text one sentence or several, or a few words
 * @returns {string}
 */
export function told(text) {
  if (!rows.length || !text) return text;
  const sentences = text.trim().split(BETWEEN_SENTENCES);
  /** @type {string[]} */
  const said = [];
  while (sentences.length) {
    let taken = sentences.length;
    let found = /** @type {string|null} */ (null);
    while (taken && (found = find(sentences.slice(0, taken).join(' '))) === null) taken--;
    said.push(found ?? sentences[0]);
    sentences.splice(0, taken || 1);
  }
  return said.join(' ');
}

/** How much of a sentence is no value: what says more comes before '{said} Nothing was changed.' @param {string} english */
function literal(english) {
  return english.replace(/\{\w+\}/g, '').length;
}

/** @param {string} text @returns {string|null} */
function find(text) {
  for (const { pattern, names, translated } of rows) {
    const match = pattern.exec(text);
    if (match === null) continue;
    const values = Object.fromEntries(names.map((name, at) => [name, told(match[at + 1])]));
    return translated.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  }
  return null;
}
