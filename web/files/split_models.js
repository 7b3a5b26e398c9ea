/** Files that open as models or adapters, not as something to ask about. @param {File[]} files */
export function splitModels(files) {
  const isModel = ({ name }) => /\.(gguf|safetensors)$/i.test(name);
  const hasAdapter = files.some(({ name }) => /\.safetensors$/i.test(name));
  const opens = (file) => isModel(file) || (hasAdapter && /\.json$/i.test(file.name)); // PEFT writes two files
  return { models: files.filter(opens), others: files.filter((file) => !opens(file)) };
}
