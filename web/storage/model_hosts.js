/** Which hosts a model may come from; app/model_hosts.py has the same rules and says how entries are written. */
import { userError } from '../common/user_error.js';

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

/** A response from a listed host; redirects to others are refused. Errors are sentences for the user. */
export async function fetchFrom(url, hosts, options = {}) {
  if (!isAllowed(url, hosts)) throw userError('RefusedError', `${new URL(url).host} is not on the list of hosts that models may come from.`);
  const { host } = new URL(url);
  let response;
  try {
    response = await fetch(url, { ...options, credentials: 'omit', referrerPolicy: 'no-referrer' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error(`${host} cannot be reached. Check your connection, then try again.`);
  }
  if (!isAllowed(response.url, hosts)) {
    response.body?.cancel().catch(() => {});
    throw userError('RefusedError', `${host} sends on to ${new URL(response.url).host}, which is not on the list of hosts that models may come from.`);
  }
  return response;
}
