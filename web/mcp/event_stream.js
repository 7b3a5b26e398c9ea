/** The messages in the body of an answer: one that is JSON, or those of a stream of events. Both are bounded. */
import { message } from '../common/message.js';
import { userError } from '../common/user_error.js';

const LONGEST_MESSAGE = 8 << 20; // characters
const LONGEST_ANSWER = 32 << 20; // bytes

/**
 * @param {ReadableStream<Uint8Array>} body @param {boolean} isStream of events
 * @returns {AsyncGenerator<{text: string, event: string, retry: number|null}>} event: its id; retry: ms. Throws an error with
 *   `isCut` if the connection ends
 */
export async function* partsIn(body, isStream) {
  if (isStream) return yield* eventsIn(piecesOf(body));
  let text = '';
  for await (const piece of piecesOf(body)) {
    text += piece;
    check(text.length);
  }
  yield { text, event: '', retry: null };
}

async function* piecesOf(body) {
  const decoder = new TextDecoder(), reader = body.getReader();
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => { throw Object.assign(error, { isCut: true }); });
      if (done) break;
      bytes += value.length;
      if (bytes > LONGEST_ANSWER) throw tooLarge(LONGEST_ANSWER);
      yield decoder.decode(value, { stream: true });
    }
    yield decoder.decode();
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function* eventsIn(pieces) {
  let line = '', held = '', data = /** @type {string[]} */ ([]), event = '', retry = /** @type {number|null} */ (null);
  for await (const piece of pieces) {
    const text = held + piece;
    held = text.endsWith('\r') ? '\r' : ''; // a line feed may follow
    const [first, ...others] = text.slice(0, text.length - held.length).split(/\r\n|\n|\r/);
    line += first;
    for (const next of others) {
      const [, field, value] = /^([^:]*):? ?([^]*)$/.exec(line) ?? [];
      if (field === 'data') data.push(value);
      else if (field === 'id' && !value.includes('\0')) event = value;
      else if (field === 'retry' && /^\d{1,9}$/.test(value)) retry = Number(value);
      if (line === '') {
        yield { text: data.join('\n'), event, retry };
        data = [];
      }
      line = next;
    }
    check(data.reduce((sum, { length }) => sum + length, line.length));
  }
}

function check(length) {
  if (length > LONGEST_MESSAGE) throw tooLarge(LONGEST_MESSAGE);
}

function tooLarge(most) {
  return userError('ToolServerError', message('mcp.large', 'The server sent more than {most} MB for one answer.', { most: most >> 20 }));
}
