/** The types of sonata.js. Bodies have OpenAI's fields; docs/guide/api.md says which ones. */

export interface Progress {
  /** python: Sonata's program. model: the model's file. setup: the model is brought to the GPU or the CPU's workers. */
  stage: 'python' | 'model' | 'setup';
  /** Bytes, but of `setup` whatever the device counts. */
  loaded: number;
  total: number | null;
  complete: boolean;
}

export interface LoadOptions {
  /**
   * The address of a GGUF file, the file itself (or all parts of it), or the sha256 of a model that this browser keeps.
   * Without it: the model that was chosen in Sonata's settings, else the one of the site.
   */
  model?: string | File | File[];
  /** Without it, and likewise below: as Sonata's settings say, usually the GPU if there is one. */
  backend?: 'auto' | 'webgpu' | 'wasm' | 'numpy';
  precision?: 'precise' | 'fast';
  /** Workers on the CPU. */
  workers?: number;
  /** The most tokens of a conversation. */
  context?: number;
  /** MB that the model and its conversations may take. */
  memory?: number;
  /** false: no embedder is loaded, so there are no embeddings, and nothing can be taught. */
  routing?: boolean;
  onProgress?: (progress: Progress) => void;
  /** Aborts the loading. */
  signal?: AbortSignal;
}

export interface Info {
  model: string;
  backend: string;
  adapter: string;
  contextLength: number;
  parameters: number;
  /** A sentence that says why it is not the fastest backend; null if it is. */
  reason: string | null;
}

export interface RequestOptions {
  /** Ends the answer: a whole one throws APIUserAbortError, a stream just ends. */
  signal?: AbortSignal | null;
}

export interface TextPart {
  type: 'text';
  text: string;
}

export interface ToolCall {
  id: string;
  type: 'function';
  /** arguments: JSON. */
  function: { name: string; arguments: string };
}

export interface ChatMessage {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  content?: string | TextPart[] | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  name?: string;
  reasoning_content?: string;
}

export interface Tool {
  type: 'function';
  function: { name: string; description?: string; parameters?: object; strict?: boolean | null };
}

export interface RunnableTool {
  type: 'function';
  function: Tool['function'] & {
    /** Gets the arguments as JSON, or what `parse` makes of it. Its result goes to the model, as text or as JSON. */
    function: (args: any, runner: ToolRunner) => unknown;
    /** Usually JSON.parse. What it throws goes to the model, which may try again. */
    parse?: (args: string) => unknown;
  };
}

export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  /** A whole match of the pattern. */
  | { type: 'regex'; regex: string }
  | { type: 'json_schema'; json_schema: { name?: string; schema?: object; strict?: boolean | null } };

export interface Sampling {
  model?: string;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  n?: number | null;
  max_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  min_p?: number | null;
  seed?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  stop?: string | string[] | null;
  /** "default": what was taught answers, too. */
  sonata?: { memory: 'default' };
  /** Fields that these types do not know yet. */
  [field: string]: unknown;
}

export interface ChatBody extends Sampling {
  messages: ChatMessage[];
  max_completion_tokens?: number | null;
  response_format?: ResponseFormat;
  tools?: Tool[];
  tool_choice?: 'none' | 'auto' | 'required' | { type: 'function'; function: { name: string } };
  parallel_tool_calls?: boolean;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: { cached_tokens: number };
}

export type FinishReason = 'stop' | 'length' | 'tool_calls';

export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  choices: { index: number; message: ChatMessage & { content: string | null }; finish_reason: FinishReason; logprobs: any }[];
  usage?: Usage;
  /** The lesson that gave the answer. */
  sonata?: { lesson: { id: string; question: string; confidence?: number } };
}

export interface ChatDelta {
  role?: 'assistant';
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: (Partial<ToolCall> & { index: number })[];
}

export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: { index: number; delta: ChatDelta; finish_reason: FinishReason | null; logprobs?: any }[];
  usage?: Usage;
}

export interface CompletionBody extends Sampling {
  prompt: string | string[] | number[];
  echo?: boolean | null;
}

export interface Completion {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: { index: number; text: string; finish_reason: FinishReason | null; logprobs: any }[];
  usage?: Usage;
}

export interface EmbeddingsBody {
  input: string | string[];
  model?: string;
  encoding_format?: 'float' | 'base64';
  [field: string]: unknown;
}

export interface Embeddings {
  object: 'list';
  model: string;
  data: { object: 'embedding'; index: number; embedding: number[] }[];
  usage: { prompt_tokens: number; total_tokens: number };
}

/** The newer form: an answer and its events are as OpenAI describes them. */
export interface ResponsesBody extends Sampling {
  input: string | object[];
  instructions?: string | null;
}

export interface Model {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
  context_length: number;
}

/** Can be read once. Leaving the loop ends the answer. */
export class Stream<Part> implements AsyncIterable<Part> {
  private constructor();
  controller: AbortController;
  [Symbol.asyncIterator](): AsyncGenerator<Part, void>;
}

/** Asks and calls tools until there is an answer without calls. With `stream`, it gives the chunks of all answers. */
export interface ToolRunner extends AsyncIterable<ChatCompletionChunk> {
  messages: ChatMessage[];
  controller: AbortController;
  abort(): void;
  done(): Promise<void>;
  finalChatCompletion(): Promise<ChatCompletion>;
  finalMessage(): Promise<ChatCompletion['choices'][0]['message']>;
  finalContent(): Promise<string | null>;
}

export interface Create<Body, Whole, Part> {
  (body: Body & { stream: true }, options?: RequestOptions): Promise<Stream<Part>>;
  (body: Body & { stream?: false | null }, options?: RequestOptions): Promise<Whole>;
}

export class Sonata {
  private constructor();
  /** Resolves once the model can answer. Tabs that want the same share one. */
  static load(options?: LoadOptions): Promise<Sonata>;
  /** True if the model lies in this browser, so that nothing large is downloaded. */
  static isKept(options?: Pick<LoadOptions, 'model'>): Promise<boolean>;
  readonly info: Info;
  readonly chat: {
    completions: {
      create: Create<ChatBody, ChatCompletion, ChatCompletionChunk>;
      runTools(
        body: Omit<ChatBody, 'tools'> & { tools: RunnableTool[] },
        options?: RequestOptions & { maxChatCompletions?: number },
      ): ToolRunner;
    };
  };
  readonly completions: { create: Create<CompletionBody, Completion, Completion> };
  readonly responses: { create: Create<ResponsesBody, any, any> };
  readonly embeddings: { create(body: EmbeddingsBody, options?: RequestOptions): Promise<Embeddings> };
  readonly models: { list(options?: RequestOptions): Promise<{ object: 'list'; data: Model[] }> };
  /** For clients that take a `fetch`, such as openai: the host of the address does not matter. */
  readonly fetch: typeof globalThis.fetch;
  /** Remembers an answer: bodies with `sonata: { memory: 'default' }` get it, and so does Sonata's chat. */
  teach(lesson: { question: string; answer: string }): Promise<{ lesson: { id: string; question: string; answer: string } }>;
  /** Releases the model. */
  close(): void;
}

/** The API refuses a request, or the answer broke off. `status`: of HTTP, undefined if the answer had begun. */
export class APIError extends Error {
  constructor(status: number | undefined, body: any);
  readonly status: number | undefined;
  readonly code: string | null;
  readonly param: string | null;
  readonly type: string | undefined;
  readonly error: any;
}

export class APIUserAbortError extends APIError {
  constructor();
}
