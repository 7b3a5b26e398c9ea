/**
 * A worker without a model, for tests of the page alone. Its behaviour is set by the address of the "model" at the start
 * (silent, broken, missing; held: it stays at one half until a message arrives on the channel `stand-in`) and later by the
 * words of the question.
 */
import * as Comlink from '../vendor/comlink.mjs';
import './stream_transfer.js';
import { EventQueue } from './event_queue.js';
import { userError } from '../common/user_error.js';

const DEVICE_LOST = { code: 'gpu.lost', text: 'The connection to the graphics card was lost. Load the model again to continue.', values: {} };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const MARKDOWN = `The sky is blue because of **Rayleigh scattering**: air scatters short waves far more than long ones.

### In short

1. Sunlight enters the air.
2. Blue light is scattered about *ten times* as much as red.

\`\`\`python
def scattering(wavelength_nm):
    return 1 / wavelength_nm ** 4
\`\`\`

| colour | wavelength |
|---|---:|
| blue | 450 nm |
| red | 700 nm |

> At sunset the light crosses more air, and red is what is left.

See [Rayleigh scattering](https://en.wikipedia.org/wiki/Rayleigh_scattering).`;

const HOSTILE = `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>

![tracker](https://tracker.invalid/a.png) [click](javascript:window.harmed=1) <svg onload="window.harmed=1">

<iframe src="https://tracker.invalid"></iframe><form action="https://tracker.invalid"><input name="a"></form>

[fine](https://example.org/)`;

const ANSWERS = {
  hostile: HOSTILE,
  sections: Array.from({ length: 80 }, (_, i) => `## Part ${i}\n\n${MARKDOWN}\n\n`).join(''),
  list: Array.from({ length: 1000 }, (_, i) => `${i + 1}. item **${i + 1}** of a list that has no end`).join('\n'),
  quotes: '>'.repeat(20_000),
  formula: 'The area is \\(a_1 * b_2 * c\\), and\n\n\\[\nE = mc^2\n=\n\\boxed{\\sqrt{x}}\n\\]\n\nis known. A \\( alone stays text, and $5 and $10 are prices.',
  arabic: 'السماء زرقاء because of scattering.',
  code: `\`\`\`\n${'let answer = 42;\n'.repeat(3000)}`,
};

const kernel = (name, count, usEach, gb, gflop, limit, share) => ({
  kernel: name, count, us_each: usEach, us: count * usEach, share: (count * usEach) / 1120, gb_s: gb, gflop_s: gflop, limit,
  limit_share: share,
});
const PROFILE = {
  adapter: 'A graphics card', model: 'SmolLM2 135M Instruct', limits: { gb_s: 2650, gflop_s: 51_200 },
  passes: [{
    position: 512, rows: 1, wall_us: 1120, tok_s: 893, us: 1120, between_us: 50, wait_us: 80,
    kernels: [
      kernel('embedding', 1, 4.1, 0.7, 0, 'memory', 0.0003),
      kernel('rms_norm', 61, 1.9, 3.6, 1.2, 'memory', 0.0014),
      kernel('linear 576x3072 Q4_1 + SwiGLU', 30, 7.2, 154, 491, 'memory', 0.058),
      kernel('attention', 30, 11.6, 68, 101, 'compute', 0.026),
      kernel('linear 576x49152 Q8_0', 1, 22.7, 1334, 2494, 'memory', 0.503),
    ],
  }],
};

let report;
let stopped = false;

Comlink.expose({
  async start({ model, backend, precision, context }, onProgress) {
    report = onProgress;
    const { url = '' } = model; // none if the browser keeps it
    if (url.includes('silent')) await new Promise(() => {});
    if (url.includes('broken')) throw new TypeError('nothing is here');
    if (url.includes('missing')) throw userError('DownloadError', 'The model file is not on the server (HTTP 404). Check the address, then load again.');
    const held = url.includes('held') && new Promise((resolve) => {
      new BroadcastChannel('stand-in').onmessage = resolve;
    });
    for (let part = 0; part <= 20; part += 1) {
      const total = 98_362_432;
      onProgress({ stage: 'model', done: part * 4_918_121.6, total, complete: part === 20 });
      onProgress({ stage: 'python', done: Math.min(part, 10) * 1_700_000, total: 17_000_000, complete: part >= 10 });
      onProgress({ stage: 'routing', done: Math.min(part, 15) * 2_400_000, total: 36_000_000, complete: part >= 15 });
      if (part === 10) await held;
      await sleep(1);
    }
    const onTheCpu = backend === 'wasm';
    return {
      backend: onTheCpu ? 'wasm' : 'webgpu',
      adapter: onTheCpu ? 'CPU, 2 workers, relaxed SIMD' : 'A graphics card',
      software: onTheCpu,
      features: onTheCpu ? [precision] : [],
      reason: onTheCpu ? 'This browser has no WebGPU, so Sonata runs on the CPU (2 workers). Current Chrome, Edge and Safari have WebGPU when hardware acceleration is turned on, Firefox on Windows and macOS.' : null,
      model: 'SmolLM2 135M Instruct',
      contextLength: context ?? 8192,
      fit: {
        trained: 8192, weights: 98_000_000, pages: 377_000_000, scratch: 21_000_000,
        contexts: [[1024, 166_000_000], [4096, 308_000_000], [8192, 496_000_000]],
      },
      longestPrompt: 100_000,
      given: url, // the model that it was asked to load
      notice: null,
    };
  },

  stream(api, method, { text = '' }) {
    const events = new EventQueue();
    if (api === 'tools') return events;
    stopped = false;
    const ended = method === 'profile' ? measure(events) : answer(text, events, method === 'retry');
    ended.then(() => events.end(), (error) => events.fail(error));
    return events;
  },

  call(api, method) {
    if (['memory', 'learning', 'files'].includes(api)) {
      return { error: { kind: 'EmbedderError', message: 'The stand-in remembers nothing.', details: null, reason: null } };
    }
    if (['stop', 'begin'].includes(method)) stopped = true;
    if (method === 'callTool') return { value: { result: '392', failed: false } };
    return { value: null };
  },

  checkModel: ({ stem }) => ({ title: stem, licence: '' }),
  useAdapter: () => '',
  loseDevice: () => report({ stage: 'device', done: 0, total: null }),
});

async function measure(events) {
  for (let done = 0; done < 1; done += 0.1) {
    events.push({ done, report: null });
    await sleep(30);
  }
  events.push({ done: 1, report: PROFILE });
}

async function answer(text, events, again) {
  if (text.includes('busy')) for (const end = performance.now() + 1000; performance.now() < end;);
  if (text.includes('silent')) await new Promise(() => {});
  if (text.includes('broken')) {
    await sleep(text.includes('slowly') ? 1500 : 0);
    throw new RangeError('a bug');
  }
  if (text.includes('too long')) {
    events.push({ type: 'failure', kind: 'ContextFullError', details: null, message: 'The text is 9000 tokens long, but the model reads at most 8192. Shorten the message.' });
    return;
  }
  if (text.includes('read')) {
    for (let done = 0; done <= 2500; done += 500) {
      events.push({ type: 'reading', done, total: 2500 });
      await sleep(text.includes('slowly') ? 300 : 20);
    }
  }
  if (text.includes('tool')) {
    events.push({ type: 'tool-called', id: 'call00001', name: 'calculate', arguments: { expression: '17 * 23' } });
    events.push({ type: 'tool-called', id: 'call00002', name: 'search_files', arguments: { query: 'tea' } });
    while (text.includes('waits') && !stopped) await sleep(20);
    const result = stopped ? 'It was stopped.' : '<b>391</b>';
    events.push({ type: 'tool-returned', id: 'call00001', result, failed: stopped, seconds: 0.1 });
    if (!stopped) events.push({ type: 'tool-returned', id: 'call00002', result: 'There are no files.', failed: true, seconds: 0.1 });
  }
  const thinks = text.includes('think');
  if (thinks) {
    for (const word of 'First <b>this</b>,\nthen that.'.match(/[^]{1,6}/g)) {
      events.push({ type: 'thought', text: word });
      await sleep(1);
    }
    while (text.includes('forever') && !stopped) await sleep(20);
  }
  const kind = Object.keys(ANSWERS).find((name) => text.includes(name));
  const whole = ANSWERS[kind] ?? MARKDOWN;
  const words = whole.match(whole.length > 5000 ? /[^]{1,96}/g : /[^]{1,12}/g); // a sleep takes at least 4 ms
  const begin = performance.now();
  let newTokens = 0;
  for (const word of words) {
    if (stopped) break;
    if (newTokens === 3 && text.includes('no device')) {
      events.push({ type: 'failure', kind: 'DeviceLostError', details: null, message: DEVICE_LOST });
      return;
    }
    events.push({ type: 'delta', text: word });
    newTokens += 1;
    await sleep(text.includes('slowly') ? 50 : 1);
  }
  if (text.includes('held') && !again) await new Promise((goOn) => Object.assign(new BroadcastChannel('held'), { onmessage: goOn }));
  const decodeTokS = newTokens / (performance.now() - begin) * 1000;
  const ending = text.includes('loop') ? 'loop' : 'end';
  if (ending === 'loop') events.push({ type: 'replacement', text: 'The sky is **blue**.', thought: thinks ? 'First.' : '' });
  events.push({ again, type: 'done', thoughtSeconds: thinks ? 65 : 0, reason: stopped ? 'stopped' : ending, promptTokens: 30, newTokens, prefillTokS: 900, decodeTokS, forgottenTurns: 0 });
}
