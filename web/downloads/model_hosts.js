/** Which hosts a model may come from; app/models/hosts.py has the same rules and says how entries are written. */
import { cut } from '../common/cut.js';
import { userError } from '../common/user_error.js';

const TO_DO = 'If you trust it, allow it in Settings, Model.';
/** Options of a request: another host is told neither who asks nor where the page lies. */
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

/** Throws a userError where a model may not come from an address. @param {string} url @param {string[]} hosts */
export function checkHost(url, hosts) {
  if (isAllowed(url, hosts)) return;
  const { protocol, host } = new URL(url);
  if (protocol !== 'https:') throw userError('RefusedError', `Models come over https only, not from ${cut(url)}.`);
  throw userError('RefusedError', `${host} is not on the list of hosts that models may come from. ${TO_DO}`);
}

/** Throws a userError where a response came from an address that models may not come from. */
export function checkRedirect(response, url, hosts) {
  if (isAllowed(response.url, hosts)) return;
  response.body?.cancel().catch(() => {});
  const { host } = new URL(response.url);
  throw userError('RefusedError', `${new URL(url).host} sends on to ${host}, which is not on the list of hosts that models may come from. ${TO_DO}`);
}

/** A response from a listed host; redirects to others are refused. Errors are sentences for the user. */
export async function fetchFrom(url, hosts, options = {}) {
  checkHost(url, hosts);
  let response;
  try {
    response = await fetch(url, { ...options, ...DISCREET });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error(`${new URL(url).host} cannot be reached. Check your connection, then try again.`);
  }
  checkRedirect(response, url, hosts);
  return response;
}
