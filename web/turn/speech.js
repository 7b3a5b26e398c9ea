/** Reads an answer aloud with a voice of this device, one answer at a time. */

let reading = /** @type {SpeechSynthesisUtterance|null} */ (null);

/** True if there is a voice that needs no network: the text must not leave this device. */
export function canReadAloud() {
  return 'speechSynthesis' in window && speechSynthesis.getVoices().some(({ localService }) => localService);
}

/** @returns {boolean} true if something is being read */
export function isReadingAloud() {
  return reading !== null;
}

/** @param {string} text as people read it, without Markdown's marks */
export function readAloud(text) {
  stopReading();
  const said = new SpeechSynthesisUtterance(text);
  const language = document.documentElement.lang;
  const voices = speechSynthesis.getVoices().filter(({ localService }) => localService);
  said.voice = voices.find(({ lang }) => lang.startsWith(language)) ?? voices[0];
  said.onend = said.onerror = () => { if (reading === said) reading = null; };
  reading = said;
  speechSynthesis.speak(said);
}

export function stopReading() {
  reading = null;
  if ('speechSynthesis' in window) speechSynthesis.cancel();
}
