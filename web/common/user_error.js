/**
 * An Error whose message is a sentence for the person at the page. `kind` becomes its name and survives Comlink; it has
 * no stack, and that is how the page tells it from a bug.
 */
export function userError(kind, message) {
  const error = new Error(message);
  error.name = kind;
  error.stack = '';
  return error;
}
