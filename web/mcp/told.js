/** The tools and results of a server, as the page offers them and a model reads them. app/mcp/tool_servers.py has the same rules. */
import { visible, wholeEnd } from '../common/cut.js';

const MOST_TOOLS = 100; // of a server
const LONGEST_DESCRIPTION = 1000; // characters
const LONGEST_SCHEMA = 20_000; // characters of JSON
const LONGEST_TOOLS = 100_000; // characters of JSON, of all tools of a server: the browser keeps them
const MOST_DEEP = 64; // py_core/tool_calls/definitions.py
const LONGEST_NAME = 128;
const LONGEST_RESULT = 20_000; // app/tools/model_tool.py
const LONGEST_LINE = 200;

/** @typedef {{name: string, description: string, parameters: Record<string, any>}} ServerTool with the server's own name */

/**
 * @param {any} told of a tool @param {Map<string, ServerTool>} found before @param {number} characters of those
 * @returns {ServerTool|null} null if it cannot be offered
 */
export function usable(told, found, characters) {
  const { name, description = '', inputSchema: parameters } = told ?? {};
  if (typeof name !== 'string' || !name || name.length > LONGEST_NAME || found.has(name) || found.size >= MOST_TOOLS) return null;
  if (!isObject(parameters) || (parameters.type ?? 'object') !== 'object' || !isObject(parameters.properties ?? {})) return null;
  const schema = jsonOf(parameters);
  if (!schema || schema.length > LONGEST_SCHEMA || depthOf(schema) > MOST_DEEP || characters + schema.length > LONGEST_TOOLS) return null;
  const about = shown(String(description));
  return { name, description: about.slice(0, wholeEnd(about, LONGEST_DESCRIPTION)), parameters: { type: 'object', ...parameters } };
}

/** @param {string} json @returns {number} brackets within each other */
function depthOf(json) {
  let depth = 0, most = 0;
  for (const bracket of json.replace(/"(?:[^"\\]|\\.)*"/g, '').match(/[[\]{}]/g) ?? []) {
    depth += '[{'.includes(bracket) ? 1 : -1;
    most = Math.max(most, depth);
  }
  return most;
}

/** @param {any} result of a call @returns {string|null} what a model reads; null if it is none */
export function textOf({ content = [], structuredContent }) {
  if (!Array.isArray(content)) return null;
  const parts = content.map(partOf);
  if (parts.includes(null)) return null;
  const text = parts.length || structuredContent === undefined ? parts.join('\n') : jsonOf(structuredContent);
  if (text.length <= LONGEST_RESULT) return text;
  const end = wholeEnd(text, LONGEST_RESULT);
  return `${text.slice(0, end)}\n(The result is longer: ${text.length - end} more characters were left out.)`;
}

/** @returns {string|null} */
function partOf(part) {
  const { type, text, data, mimeType, name, uri, resource } = part ?? {};
  if (type === 'text' && typeof text === 'string') return text;
  if (type === 'resource_link') return `(A link to ${line(String(name))}: ${line(String(uri))})`;
  if (type === 'resource' && isObject(resource)) {
    return typeof resource.text === 'string' ? resource.text : `(A file that is not text is left out: ${line(String(resource.uri))})`;
  }
  if ((type !== 'image' && type !== 'audio') || typeof data !== 'string') return null;
  const what = type === 'image' ? 'A picture' : 'A sound';
  return `(${what} is left out: ${line(String(mimeType))}, ${Math.floor(data.length * 3 / 4)} bytes)`;
}

/** @returns {value is Record<string, any>} */
export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @returns {string} "" if it is nested too deeply for the browser */
function jsonOf(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return '';
  }
}

/** A stranger's text in one line. @param {string} text */
export function line(text) {
  const words = shown(text.slice(0, 4 * LONGEST_LINE)).split(/\s+/).join(' ').trim();
  return words.length > LONGEST_LINE ? `${words.slice(0, wholeEnd(words, LONGEST_LINE))}…` : words;
}

/** @param {string} text @returns {string} without characters that do something */
function shown(text) {
  return visible(text).replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, '\ufffd');
}
