/**
 * One of the tabs that have a database open writes; Web Locks choose it. The others send it their batches over a
 * BroadcastChannel, and one of them takes over when it closes. Every tab is told what others changed.
 *
 * IndexedDB's transactions would keep tabs apart by themselves; if the browser has no Web Locks, or the writer does not answer
 * (a frozen tab), a tab writes by itself. A batch has an id, so that it is written only once.
 */
import { openChannel, webLocks } from '../common/browser_parts.js';

const ANSWER_MS = 5000;

export class TabWriter {
  /**
   * @param apply async ({ id, head, data }) => { revision, change }, in this tab
   * @param heard (change) called with a change of another tab
   */
  constructor(name, { apply, heard }) {
    this.doHere = apply;
    this.heard = heard;
    this.tab = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    this.requests = 0;
    this.pending = new Map(); // id -> { request, answer }
    this.writes = false;
    this.ended = new AbortController();
    this.channel = openChannel(`sonata-memory:${name}`);
    this.channel.onmessage = ({ data }) => this.receive(data);
    this.queue(name);
  }

  /** @returns {Promise<number>} the new revision */
  async apply({ head, data }) {
    const id = `${this.tab}/${this.requests++}`;
    if (this.writes) return this.doAndTell({ head, data }, this.tab);
    return new Promise((resolve, reject) => {
      const request = { id, head, data };
      const timer = setTimeout(() => this.doPending(id), ANSWER_MS);
      const answer = ({ revision, error }) => {
        clearTimeout(timer);
        this.pending.delete(id);
        if (error) reject(asError(error));
        else resolve(revision);
      };
      this.pending.set(id, { request, answer });
      this.channel.postMessage({ kind: 'apply', tab: this.tab, request });
    });
  }

  close() {
    this.ended.abort();
    this.release?.();
    this.writes = false;
    this.channel.close();
    for (const { answer } of [...this.pending.values()]) answer({ error: { name: 'closed', message: '' } });
  }

  async queue(name) {
    const locks = await webLocks();
    if (!locks) {
      this.write();
      return;
    }
    try {
      await locks.request(`sonata-memory:${name}`, { signal: this.ended.signal }, () => {
        if (this.ended.signal.aborted) return null;
        this.write();
        return new Promise((/** @type {(value: void) => void} */ resolve) => (this.release = resolve));
      });
    } catch {
      if (!this.ended.signal.aborted) this.write(); // no locks here
    }
  }

  /** Makes this tab the writer. */
  write() {
    this.writes = true;
    for (const id of [...this.pending.keys()]) this.doPending(id);
  }

  async doPending(id) {
    const pending = this.pending.get(id);
    if (!pending) return;
    try {
      pending.answer({ revision: await this.doAndTell(pending.request, this.tab) });
    } catch (error) {
      pending.answer({ error });
    }
  }

  async doAndTell(request, tab) {
    const { revision, change } = await this.doHere(request);
    if (!this.ended.signal.aborted) this.channel.postMessage({ kind: 'change', tab, change });
    if (tab !== this.tab) this.heard(change);
    return revision;
  }

  /** Ignores messages that are not ours. */
  async receive(data) {
    const { kind, tab, request, change, id, revision, error } = data ?? {};
    if (kind === 'change' && tab !== this.tab && isChange(change)) this.heard(change);
    if (kind === 'answer') this.pending.get(id)?.answer({ revision, error });
    if (kind === 'apply' && this.writes && typeof request?.head === 'string') {
      const answer = { kind: 'answer', id: request.id };
      try {
        answer.revision = await this.doAndTell(request, tab);
      } catch (failed) {
        answer.error = { name: failed.name, message: failed.message };
      }
      if (!this.ended.signal.aborted) this.channel.postMessage(answer);
    }
  }
}

/** As memory/indexeddb.js makes them. */
function isChange(change) {
  const areKeys = (keys) => Array.isArray(keys) && keys.every((key) => Array.isArray(key) && key.length === 2);
  return areKeys(change?.puts) && areKeys(change.deletes) && 'cleared' in change && 'everything' in change;
}

function asError({ name, message }) {
  const error = new Error(message);
  error.name = name;
  error.stack = '';
  return error;
}
