/**
 * An Error whose message is a sentence for the user. `kind` becomes its name, which survives Comlink. It has no stack:
 * that is how the page tells it from a bug.
 */
export function userError(kind, message) {
  const error = new Error(message);
  error.name = kind;
  error.stack = '';
  return error;
}
