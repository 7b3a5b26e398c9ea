/** The errors of sonata.js, with the names and fields of OpenAI's client. */

export class APIError extends Error {
  /** @param {number|undefined} status of HTTP; undefined if the answer had begun @param {any} body what the API says: {message, type, param, code} */
  constructor(status, body) {
    super(`${status ? `${status} ` : ''}${body?.message ?? 'The model gave no reason.'}`);
    this.name = 'APIError';
    this.status = status;
    this.error = body;
    this.code = body?.code ?? null;
    this.param = body?.param ?? null;
    this.type = body?.type;
  }
}

export class APIUserAbortError extends APIError {
  constructor() {
    super(undefined, { message: 'Request was aborted.' });
    this.name = 'APIUserAbortError';
  }
}
