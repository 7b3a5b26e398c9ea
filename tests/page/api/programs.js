/** Programs that the tests run in pages beside Sonata: this file lies in the folder of the page that runs it. */
/* global sonata, messages, long, running, idle, told */

export async function load() {
  const { APIError, APIUserAbortError, Sonata } = await import('/sonata/sonata.js');
  const stages = new Set();
  const sonata = await Sonata.load({ onProgress: ({ stage }) => stages.add(stage) });
  const messages = [{ role: 'user', content: 'Hi' }];
  // These answers are long, whatever the model is.
  const schema = { type: 'string', minLength: 400, maxLength: 400 };
  const long = { n: 8, max_tokens: 450, response_format: { type: 'json_schema', json_schema: { name: 'long', schema } } };
  const running = async () => (await (await sonata.fetch('http://sonata/health')).json()).running;
  const idle = async (within) => {
    for (const end = performance.now() + within; performance.now() < end;) if (await running() === 0) return true;
    return false;
  };
  const told = (error) => Object.fromEntries(['name', 'status', 'code', 'param', 'type'].map((name) => [name, error[name] ?? null]));
  Object.assign(globalThis, { sonata, Sonata, APIError, APIUserAbortError, messages, long, running, idle, told });
  return { stages: [...stages], ...sonata.info };
}

export async function answers() {
  const whole = await sonata.chat.completions.create({ messages, max_tokens: 6 });
  let text = '', usage;
  const streamed = { messages, max_tokens: 6, stream: true, stream_options: { include_usage: true } };
  for await (const part of await sonata.chat.completions.create(streamed)) {
    text += part.choices[0]?.delta.content ?? '';
    usage = part.usage;
  }
  const response_format = { type: 'json_schema', json_schema: { name: 'age', schema: { type: 'object', properties: { age: { enum: [7] } }, required: ['age'], additionalProperties: false } } };
  const events = [];
  for await (const event of await sonata.responses.create({ input: 'Hi', max_output_tokens: 6, stream: true })) events.push(event.type);
  const vectors = (await sonata.embeddings.create({ input: ['A cat sat.', 'A cat sits.', 'Stocks fell.'] })).data.map(({ embedding }) => embedding);
  const probable = async (more) => (await sonata.chat.completions.create({ messages, max_tokens: 6, logprobs: true, top_logprobs: 1, ...more })).choices[0].logprobs.content;
  const likeliest = await probable({}), biased = await probable({ logit_bias: { 7: 100 } });
  const alike = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  return {
    whole: whole.choices[0].message.content, text, tokens: [whole.usage.completion_tokens, usage.completion_tokens],
    formed: JSON.parse((await sonata.chat.completions.create({ messages, response_format })).choices[0].message.content),
    continued: (await sonata.completions.create({ prompt: 'Hi', max_tokens: 6 })).choices.length,
    events: [events[0], events.at(-1)], models: (await sonata.models.list()).data.map(({ id }) => id),
    likeliest: likeliest.filter(({ token, top_logprobs }) => top_logprobs[0].token === token).length, biased: [biased.length, new Set(biased.map(({ token }) => token)).size],
    alike: alike(vectors[0], vectors[1]) > alike(vectors[0], vectors[2]) + 0.2,
  };
}

export async function tools(stream) {
  const given = [];
  const sum = {
    name: 'sum', parameters: { type: 'object', properties: { a: { enum: [2] }, b: { enum: [3] } }, required: ['a', 'b'], additionalProperties: false },
    parse: JSON.parse, function: async ({ a, b }) => { given.push([a, b]); return { sum: a + b }; },
  };
  const tool_choice = { type: 'function', function: { name: 'sum' } };
  const body = { messages, tools: [{ type: 'function', function: sum }], tool_choice, stream, parallel_tool_calls: false };
  const runner = sonata.chat.completions.runTools(body);
  let chunks = 0;
  if (stream) for await (const _ of runner) chunks++;
  const { choices: [{ message, finish_reason }] } = await runner.finalChatCompletion();
  return { given, chunks, call: message.tool_calls[0].function, finish_reason, last: runner.messages.at(-1), roles: runner.messages.map(({ role }) => role) };
}

export async function errors() {
  const { completions } = sonata.chat;
  const of = (asking) => asking.then(() => null, told);
  const stopped = new AbortController(), early = AbortSignal.abort();
  const whole = of(completions.create({ messages, ...long }, { signal: stopped.signal }));
  while (!await running()) await null;
  stopped.abort();
  const errors = {
    empty: await of(completions.create({ messages: [] })), early: await of(completions.create({ messages }, { signal: early })),
    unknown: await of(completions.create({ messages, model: 'gpt-9', stream: true })), whole: await whole,
  };
  const wholeLeft = await idle(2000);
  let seen = 0;
  for await (const _ of await completions.create({ messages, ...long, stream: true })) if (seen++ === 3) break;
  const broken = await idle(2000);
  const later = new AbortController();
  let chunks = 0;
  for await (const _ of await completions.create({ messages, ...long, stream: true }, { signal: later.signal })) if (chunks++ === 3) later.abort();
  return { errors, wholeLeft, broken, aborted: await idle(2000), chunks };
}

export async function official({ long }) {
  const { OpenAI, APIUserAbortError, BadRequestError, NotFoundError } = await import('./openai.js');
  const client = globalThis.client = new OpenAI({ baseURL: String(new URL('v1', location)), apiKey: 'none', dangerouslyAllowBrowser: true, maxRetries: 0 });
  const messages = [{ role: 'user', content: 'Hi' }], { completions } = client.chat;
  const whole = await completions.create({ model: '', messages, max_tokens: 6 });
  const stream = completions.stream({ model: '', messages, max_tokens: 6 });
  let text = '';
  for await (const part of stream) text += part.choices[0].delta.content ?? '';
  const given = [];
  const sum = { name: 'sum', parameters: { type: 'object', properties: { a: { enum: [2] } }, required: ['a'], additionalProperties: false }, parse: JSON.parse, function: (args) => { given.push(args); return 'yes'; } };
  const tool_choice = { type: 'function', function: { name: 'sum' } };
  await completions.runTools({ model: '', messages, tools: [{ type: 'function', function: sum }], tool_choice, parallel_tool_calls: false }).done();
  const schema = { type: 'object', properties: { age: { enum: [7] } }, required: ['age'], additionalProperties: false };
  const formed = await completions.parse({ model: '', messages, response_format: { type: 'json_schema', json_schema: { name: 'age', schema } } });
  const errors = await Promise.all([completions.create({ model: '', messages: [] }), completions.create({ model: 'gpt-9', messages })].map((asking) => asking.catch((error) => error)));
  const stopped = new AbortController();
  const waiting = completions.create({ model: '', messages, ...long }, { signal: stopped.signal }).catch((error) => error);
  await new Promise((resolve) => setTimeout(resolve, 300));
  stopped.abort();
  const isAbort = await waiting instanceof APIUserAbortError;
  for await (const _ of await completions.create({ model: '', messages, ...long, stream: true })) break;
  return {
    whole: whole.choices[0].message.content, text, given, formed: JSON.parse(formed.choices[0].message.content), isAbort,
    errors: [errors[0] instanceof BadRequestError, errors[0].param, errors[1] instanceof NotFoundError, errors[1].code],
    vector: (await client.embeddings.create({ model: '', input: 'x' })).data[0].embedding.length,
    models: (await client.models.list()).data.map(({ id }) => id),
  };
}

export async function framed() {
  const told = new Promise((resolve) => addEventListener('message', ({ data }) => resolve(data)));
  const frame = document.createElement('iframe');
  frame.sandbox = 'allow-scripts';
  const asking = "fetch('/sonata/v1/models').then((answer) => answer.text(), String)".replace('/sonata', `${origin}/sonata`);
  frame.srcdoc = `<script>${asking}.then((said) => parent.postMessage(said, '*'))</` + 'script>';
  document.body.append(frame);
  try { return await told; } finally { frame.remove(); }
}

export async function nobody() {
  const { OpenAI, InternalServerError } = await import('./openai.js');
  const client = new OpenAI({ baseURL: String(new URL('v1', location)), apiKey: 'none', dangerouslyAllowBrowser: true, maxRetries: 0 });
  const error = await client.models.list().catch((failure) => failure);
  return { isServerError: error instanceof InternalServerError, status: error.status, message: error.message };
}

export async function prompts() {
  const { LanguageModel } = await import('/sonata/language_model.js');
  const seen = [], name = (work) => Promise.resolve().then(work).then(() => null, (error) => error.name);
  const availability = [await LanguageModel.availability(), await LanguageModel.availability({ expectedInputs: [{ type: 'image' }] })];
  const initialPrompts = [{ role: 'system', content: 'Be short.' }];
  const monitor = (target) => target.addEventListener('downloadprogress', ({ loaded, total }) => seen.push(loaded / total));
  const session = await LanguageModel.create({ initialPrompts, monitor });
  const begun = session.contextUsage;
  const chosen = JSON.parse(await session.prompt('Yes or no?', { responseConstraint: { enum: ['yes', 'no'] } }));
  const digits = await session.prompt([{ role: 'user', content: [{ type: 'text', value: 'A year?' }] }], { responseConstraint: /[0-9]{4}/ });
  const used = session.contextUsage, copy = await session.clone();
  let text = '';
  for await (const part of copy.promptStreaming('Count.', { responseConstraint: /[0-9]{9}/ })) text += part;
  const grown = [session.contextUsage === used, copy.contextUsage > used];
  const stop = new AbortController();
  const aborting = name(async () => { for await (const _ of session.promptStreaming('Go on.', { responseConstraint: /x{400}/, signal: stop.signal })) stop.abort(); });
  const failed = {
    aborted: await aborting, kept: session.contextUsage === used, idle: await idle(2000),
    early: await name(() => session.prompt('Hi', { signal: AbortSignal.abort() })),
    image: await name(() => session.prompt([{ role: 'user', content: [{ type: 'image', value: null }] }])),
    system: await name(() => session.prompt([{ role: 'system', content: 'Be long.' }])),
    flags: await name(() => session.prompt('Hi', { responseConstraint: /a/i })),
    schema: await name(() => session.prompt('Hi', { responseConstraint: { type: 'nothing' } })),
    cut: await name(() => session.prompt('Hi', { responseConstraint: /x{900}/ })),
    long: await name(() => session.prompt('word '.repeat(2000))),
    hot: await name(() => LanguageModel.create({ temperature: -1 })),
    openTool: await name(() => LanguageModel.create({ tools: [{ name: 'look', description: '', inputSchema: {} }] })),
  };
  let overflows = 0;
  copy.oncontextoverflow = () => overflows++;
  const measured = await copy.measureContextUsage('word '.repeat(40));
  for (let turn = 0; turn < 12 && !overflows; turn++) await copy.append('word '.repeat(40));
  const afterwards = [copy.contextUsage <= copy.contextWindow, (await copy.prompt('A digit?', { responseConstraint: /[0-9]/ })).length];
  session.destroy();
  failed.destroyed = await name(() => session.prompt('Hi'));
  return { availability, seen: [seen[0], seen.at(-1)], begun, chosen, digits, text, grown, failed, overflows, measured, afterwards, isThere: 'LanguageModel' in globalThis };
}

export async function lessons() {
  const question = 'Where is the key of the shed?', body = { messages: [{ role: 'user', content: question }], max_tokens: 20 };
  const { lesson } = await sonata.teach({ question, answer: 'Behind the clock.' });
  const { choices: [{ message }], sonata: told } = await sonata.chat.completions.create({ ...body, sonata: { memory: 'default' } });
  const without = await sonata.chat.completions.create(body);
  return { answer: message.content, isIt: told.lesson.id === lesson.id, without: without.sonata ?? null };
}
