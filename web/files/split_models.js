/** Whether a file begins like a GGUF, whatever it is called: Ollama's blobs have no ending. @param {File} file */
export async function isGguf(file) {
  const magic = await file.slice(0, 4).text().catch(() => ''); // a folder
  return magic === 'GGUF';
}

/** Files that open as models or adapters, not as something to ask about. @param {File[]} files */
export async function splitModels(files) {
  const isModel = async (file) => /\.(gguf|safetensors)$/i.test(file.name) || await isGguf(file);
  const hasAdapter = files.some(({ name }) => /\.safetensors$/i.test(name));
  const opens = async (file) => (hasAdapter && /\.json$/i.test(file.name)) || isModel(file); // PEFT writes two files
  const models = /** @type {File[]} */ ([]), others = /** @type {File[]} */ ([]);
  for (const file of files) (await opens(file) ? models : others).push(file);
  return { models, others };
}
