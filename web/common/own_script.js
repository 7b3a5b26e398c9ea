/**
 * The address of a script to start, in the type that the site's policy asks for (Trusted Types): only a script of this site, or
 * one that this site made, can become a worker or a script tag.
 */
const SITE = new URL('../', import.meta.url).href;

const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy('sonata', { createScriptURL: checked });

/**
 * @param {string|URL} url of a file of the site, or a blob of it
 * @returns {string} a TrustedScriptURL if the browser has Trusted Types. Throws a TypeError for another address
 */
export function ownScript(url) {
  return policy ? policy.createScriptURL(String(url)) : checked(String(url));
}

function checked(url) {
  const { href } = new URL(url, SITE);
  if (href.startsWith(SITE) || href.startsWith(`blob:${location.origin}/`)) return href;
  throw new TypeError(`${url} is no script of this site.`);
}
