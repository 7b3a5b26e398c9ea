/**
 * A worker that loads a model and nothing else: model_source.js without Python. Reports the number of SHA-256 digests, and the
 * result.
 */
import { ModelSource } from './storage/model_source.js';
import { WeightStream } from './backends/weight_stream.js';

const { subtle } = crypto;
const digest = subtle.digest.bind(subtle);
let hashed = 0;
subtle.digest = (...given) => {
  hashed += 1;
  return digest(...given);
};

onmessage = async ({ data: model }) => {
  const source = new ModelSource(model);
  let sum = null, error = null, size = null;
  try {
    const stream = await WeightStream.open(source, { onProgress: (done) => postMessage({ done }) });
    ({ size } = stream);
    const bytes = await stream.read(0, model.bytes);
    const hash = new Uint8Array(await digest('SHA-256', bytes));
    sum = Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
  } catch (failure) {
    error = failure.message;
  }
  postMessage({ hashed });
  postMessage({ digest: sum, error, size, notice: source.notice });
};
