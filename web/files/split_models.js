/** True if a file begins like a GGUF, whatever its name: Ollama's blobs have no extension. @param {File} file */
export async function isGguf(file) {
  const magic = await file.slice(0, 4).text().catch(() => ''); // a folder
  return magic === 'GGUF';
}

/** Separates files that open as models or adapters from files to ask about. @param {File[]} files */
export async function splitModels(files) {
  const isModel = async (file) => /\.(gguf|safetensors)$/i.test(file.name) || await isGguf(file);
  const hasAdapter = files.some(({ name }) => /\.safetensors$/i.test(name));
  const opens = async (file) => (hasAdapter && /\.json$/i.test(file.name)) || isModel(file); // PEFT writes two files
  const models = /** @type {File[]} */ ([]), others = /** @type {File[]} */ ([]);
  for (const file of files) (await opens(file) ? models : others).push(file);
  return { models, others };
}
