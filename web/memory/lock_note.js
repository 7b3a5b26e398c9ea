/**
 * That a database is encrypted, noted outside of it (in OPFS), so that it is noticed when the database was emptied. Where
 * the browser has no OPFS nothing is noted.
 */

/** @returns {Promise<boolean>} */
export async function isNoted(name) {
  try {
    await (await navigator.storage.getDirectory()).getFileHandle(fileOf(name));
    return true;
  } catch {
    return false;
  }
}

/** @param {boolean} locked whether it is encrypted now */
export async function note(name, locked) {
  try {
    const folder = await navigator.storage.getDirectory();
    if (locked) await folder.getFileHandle(fileOf(name), { create: true });
    else await folder.removeEntry(fileOf(name));
  } catch {
    // there is none, or it cannot be kept here
  }
}

function fileOf(name) {
  return `${encodeURIComponent(name)}.locked`;
}
