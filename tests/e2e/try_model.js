/** A worker that loads a model and nothing else: model_source.js without Python. Answers with what came of it. */
import { ModelSource } from './storage/model_source.js';
import { WeightStream } from './backends/weight_stream.js';

onmessage = async ({ data: model }) => {
  const source = new ModelSource(model);
  let digest = null, error = null;
  try {
    const stream = await WeightStream.open(source, { onProgress: (done) => postMessage({ done }) });
    const bytes = await stream.read(0, model.bytes);
    const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    digest = Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
  } catch (failure) {
    error = failure.message;
  }
  postMessage({ digest, error, notice: source.notice });
};
