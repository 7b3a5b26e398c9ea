/**
 * Asks until the model calls no more tools, and calls them: `chat.completions.runTools`, as openai's client has it.
 *
 * A tool is {type: 'function', function: {name, description, parameters, function, parse}}: `function` gets the arguments
 * as JSON, or what `parse` makes of it. What it returns goes to the model, as text or as JSON.
 */
import { EventQueue } from '../engine/event_queue.js';

const MOST_ROUNDS = 10;

export class ToolRunner {
  /** The conversation, with the answers and the tools' results. */
  messages = /** @type {any[]} */ ([]);
  controller = new AbortController();
  #create;
  #chunks = new EventQueue(() => this.abort());
  #completion = /** @type {any} */ (null);
  #running;

  /** @param {(body: any, options: any) => Promise<any>} create of chat completions */
  constructor(create, { messages, tools, ...body }, { maxChatCompletions = MOST_ROUNDS, signal = /** @type {AbortSignal|null} */ (null) } = {}) {
    this.#create = create;
    this.messages.push(...messages);
    const either = signal ? AbortSignal.any([signal, this.controller.signal]) : this.controller.signal;
    this.#running = this.#run(tools, body, maxChatCompletions, either);
    this.#running.then(() => this.#chunks.end(), (error) => this.#chunks.fail(error));
  }

  abort() { this.controller.abort(); }

  /** Resolves once the last answer is there. */
  async done() { await this.#running; }

  async finalChatCompletion() {
    await this.#running;
    return this.#completion;
  }

  async finalMessage() { return (await this.finalChatCompletion()).choices[0].message; }

  /** @returns {Promise<string|null>} */
  async finalContent() { return (await this.finalMessage()).content ?? null; }

  /** The chunks of all answers, if the request has `stream`. */
  [Symbol.asyncIterator]() { return this.#chunks; }

  async #run(tools, body, rounds, signal) {
    const functions = new Map(tools.map((tool) => [tool.function.name, tool.function]));
    const definitions = tools.map(({ function: { function: _, parse: __, ...definition }, ...tool }) => ({ ...tool, function: definition }));
    const { function: only } = body.tool_choice ?? {};
    for (let round = 0; round < rounds; round++) {
      this.#completion = await this.#answer({ ...body, messages: this.messages, tools: definitions }, signal);
      const { message } = this.#completion.choices[0];
      this.messages.push(message);
      if (!message.tool_calls?.length) return;
      this.messages.push(...await Promise.all(message.tool_calls.map((call) => this.#call(functions, call))));
      signal.throwIfAborted();
      if (only) return; // the tool that was asked for is called once
    }
  }

  async #answer(body, signal) {
    const answer = await this.#create(body, { signal });
    if (!body.stream) return answer;
    const completion = { choices: [{ index: 0, message: { role: 'assistant', content: /** @type {string|null} */ (null) }, finish_reason: null }] };
    for await (const chunk of answer) {
      this.#chunks.push(chunk);
      addChunk(completion, chunk);
    }
    signal.throwIfAborted();
    return completion;
  }

  async #call(functions, { id, function: { name, arguments: given } }) {
    const known = functions.get(name);
    const answer = (content) => ({ role: 'tool', tool_call_id: id, content });
    if (!known) return answer(`There is no tool ${name}: the tools are ${[...functions.keys()].join(', ')}.`);
    let value = given;
    try {
      if (known.parse) value = await known.parse(given);
    } catch (error) {
      return answer(error instanceof Error ? error.message : String(error));
    }
    const result = await known.function(value, this);
    return answer(typeof result === 'string' ? result : JSON.stringify(result) ?? 'undefined');
  }
}

/** Add a chunk to the completion that all chunks give. */
function addChunk(completion, { choices, usage, object: _, ...about }) {
  Object.assign(completion, about, { object: 'chat.completion' }, usage && { usage });
  const [choice] = completion.choices;
  for (const { delta, finish_reason: reason } of choices) {
    choice.finish_reason = reason ?? choice.finish_reason;
    const { tool_calls: calls, role: __, ...texts } = delta;
    for (const [name, text] of Object.entries(texts)) choice.message[name] = (choice.message[name] ?? '') + text;
    for (const { index, ...call } of calls ?? []) {
      const all = (choice.message.tool_calls ??= []);
      if (!all[index]) all[index] = { ...call, function: { ...call.function } };
      else if (call.function?.arguments) all[index].function.arguments += call.function.arguments;
    }
  }
}
