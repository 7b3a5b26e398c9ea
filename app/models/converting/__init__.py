"""Makes a GGUF file of a folder as Hugging Face has them: config.json, tokenizer.json, safetensors."""
