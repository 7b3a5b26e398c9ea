/**
 * Speaks with the tool servers of the user. The policy of this worker cannot know their hosts (app/server/headers.py), so it
 * refuses those that are not on the list that comes with each server; a redirect is followed nowhere.
 */
import * as Comlink from '../vendor/comlink.mjs';
import { cut } from '../common/cut.js';
import '../common/error_transfer.js';
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';
import { isAllowed } from '../downloads/model_hosts.js';
import { McpClient } from './client.js';

/** @typedef {{url: string, token: string, hosts: string[]}} Address hosts: those that are allowed, as in downloads/model_hosts.js */

const clients = /** @type {Map<string, McpClient>} */ (new Map()); // by the url
const running = /** @type {Map<number, AbortController>} */ (new Map());

Comlink.expose({
  /** Begin a session instead of the one there is. @param {Address} server */
  async connect(server) {
    this.close(server.url);
    return clientOf(server).connect(new AbortController().signal);
  },

  /** @param {number} id of the call @param {Address} server @param {string} name @param {Record<string, any>} given */
  async call(id, server, name, given) {
    const stop = new AbortController();
    running.set(id, stop);
    try {
      return await clientOf(server).call(name, given, stop.signal);
    } finally {
      running.delete(id);
    }
  },

  /** @param {number} id of a call */
  stop(id) {
    running.get(id)?.abort();
  },

  /** @param {string} url */
  close(url) {
    clients.get(url)?.close();
    clients.delete(url);
  },
});

function clientOf({ url, token, hosts }) {
  if (!isAllowed(url, hosts)) {
    throw userError('RefusedError', message('mcp.not-allowed', '{url} is not on the list of tool servers.', { url: cut(url) }));
  }
  const client = clients.get(url) ?? new McpClient(url, { token });
  clients.set(url, client);
  return client;
}
