/** Outputs of Python as the model reads them: in English, as `for_model` of app/interpreter/session.py writes them. */

/** @typedef {import('../interpreter/interpreter.js').Output} Output */

const MOST = 4000; // characters; the end is kept, since errors stand there
const REASONS = {
  browser: 'Code cannot use the browser or JavaScript here.',
  died: 'Python ended unexpectedly.',
  disk: 'There is no more room for files here.',
  input: 'Code cannot ask for input here: write the values into the code.',
  lost: 'The variables are lost: the next run starts a new Python.',
  memory: 'The code needs more memory than it may have.',
  module: 'This package is not installed here.',
  network: 'Code has no network here.',
  process: 'Code cannot start other programs here.',
  recursion: 'A function calls itself too often.',
  stopped: 'The user stopped the code.',
  time: 'The code took longer than it may.',
};

/** @type {{[Type in Output['type']]: (output: Extract<Output, {type: Type}>) => string}} */
const WORDS = {
  text: ({ text }) => text.trimEnd(),
  value: ({ text }) => text.trimEnd(),
  table: ({ columns, rows }) => [columns, ...rows].map((row) => row.join(', ')).join('\n'),
  error: ({ kind, message, lines, reason }) => [
    ...lines.map(([line, text]) => (line ? `Line ${line}: ${text}` : text)), kind && `${kind}: ${message}`, REASONS[reason],
  ].filter(Boolean).join('\n'),
  files: ({ files }) => files.map(([name, size]) => `[wrote ${name}, ${size} bytes]`).join('\n'),
  picture: () => '[a picture]',
  cut: ({ most }) => `[only ${most} characters are shown]`,
};

/** @param {{outputs: Output[], problem: string}} run @returns {import('./page_tools.js').Result} */
export function resultOf({ outputs, problem }) {
  if (problem) return { failed: problem };
  const words = outputs.map((output) => /** @type {any} */ (WORDS)[output.type](output)).filter(Boolean).join('\n');
  const text = words.length > MOST ? `[...]${words.slice(-MOST)}` : words;
  return outputs.some(({ type }) => type === 'error') ? { failed: text } : { text };
}
