/** Which hosts a model may come from; app/models/hosts.py has the same rules and says how entries are written. */
import { message } from '../common/message.js';
import { cut } from '../common/cut.js';
import { userError } from '../common/user_error.js';

/** Options of a request: another host learns neither the user's identity nor the page's address. */
export const DISCREET = /** @type {const} */ ({ credentials: 'same-origin', referrerPolicy: 'no-referrer' });

/** @param {string} url @param {string[]} hosts @returns {boolean} */
export function isAllowed(url, hosts) {
  if (!URL.canParse(url)) return false;
  const { protocol, hostname, port, username, password } = new URL(url);
  if (username || password) return false;
  if (protocol === 'http:') return hosts.includes(`http://${hostname}:${port || '80'}`);
  if (protocol !== 'https:') return false;
  const parts = hostname.split('.');
  const names = [hostname, ...parts.slice(1).map((_, index) => `*.${parts.slice(index + 1).join('.')}`)];
  return names.some((name) => hosts.includes(port ? `${name}:${port}` : name));
}

/** Throws a userError if a model may not come from an address. @param {string} url @param {string[]} hosts */
export function checkHost(url, hosts) {
  if (isAllowed(url, hosts)) return;
  const { protocol, host } = new URL(url);
  if (protocol !== 'https:') throw userError('RefusedError', message('hosts.https-only', 'Models come over https only, not from {url}.', { url: cut(url) }));
  throw userError('RefusedError', message('hosts.not-listed', '{host} is not on the list of hosts that models may come from. If you trust it, allow it in Settings, Model.', { host }));
}

/** Throws a userError if a response came from an address that models may not come from. */
export function checkRedirect(response, url, hosts) {
  if (isAllowed(response.url, hosts)) return;
  response.body?.cancel().catch(() => {});
  const { host } = new URL(response.url);
  throw userError('RefusedError', message('hosts.sends-on', '{from} redirects to {host}, which is not on the list of hosts that models may come from. If you trust it, allow it in Settings, Model.', { from: new URL(url).host, host }));
}

/** A response from a listed host; redirects to others are refused. Errors are sentences for the user. */
export async function fetchFrom(url, hosts, options = {}) {
  checkHost(url, hosts);
  let response;
  try {
    response = await fetch(url, { ...options, ...DISCREET });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw userError('Error', message('hosts.not-reached', '{host} cannot be reached. Check your connection, then try again.', { host: new URL(url).host }));
  }
  checkRedirect(response, url, hosts);
  return response;
}
