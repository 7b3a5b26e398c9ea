/** The languages that are highlighted: highlight.js's name, a name for people, and other names that models write. */
const LANGUAGES = /** @type {[string, string, string[]][]} */ ([
  ['bash', 'Bash', ['sh', 'shell', 'zsh', 'console', 'terminal']],
  ['c', 'C', ['h']],
  ['cpp', 'C++', ['c++', 'cc', 'cxx', 'hpp']],
  ['csharp', 'C#', ['c#', 'cs']],
  ['css', 'CSS', []],
  ['diff', 'Diff', ['patch']],
  ['go', 'Go', ['golang']],
  ['java', 'Java', []],
  ['javascript', 'JavaScript', ['js', 'jsx', 'mjs', 'cjs', 'node']],
  ['json', 'JSON', ['json5', 'jsonc']],
  ['kotlin', 'Kotlin', ['kt']],
  ['php', 'PHP', []],
  ['python', 'Python', ['py', 'python3']],
  ['ruby', 'Ruby', ['rb']],
  ['rust', 'Rust', ['rs']],
  ['sql', 'SQL', ['mysql', 'postgresql', 'sqlite']],
  ['swift', 'Swift', []],
  ['typescript', 'TypeScript', ['ts', 'tsx']],
  ['xml', 'XML', ['html', 'svg', 'xhtml']],
  ['yaml', 'YAML', ['yml']],
]);
const LABELS = { html: 'HTML', svg: 'SVG', text: '', txt: '', plaintext: '', plain: '' };

/** highlight.js's files, which it needs for them. */
export const GRAMMARS = LANGUAGES.map(([name]) => name);

/**
 * @param {string} written behind the fence
 * @returns {{name: string|null, label: string}} name: null if it is not highlighted; label: "" if nothing is known
 */
export function languageOf(written) {
  const wanted = written.toLowerCase();
  const found = LANGUAGES.find(([name, , others]) => name === wanted || others.includes(wanted));
  return { name: found?.[0] ?? null, label: LABELS[wanted] ?? found?.[1] ?? written };
}
