/**
 * Notes outside of a database (in OPFS) that it is encrypted, so that an emptied database is noticed. Without OPFS nothing is
 * noted.
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

/** @param {boolean} locked true if it is encrypted now */
export async function note(name, locked) {
  try {
    const folder = await navigator.storage.getDirectory();
    if (locked) await folder.getFileHandle(fileOf(name), { create: true });
    else await folder.removeEntry(fileOf(name));
  } catch {
    // no note exists, or it cannot be kept here
  }
}

function fileOf(name) {
  return `${encodeURIComponent(name)}.locked`;
}
