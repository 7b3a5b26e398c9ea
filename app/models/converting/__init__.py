"""Makes a GGUF file from a folder in Hugging Face's format: config.json, tokenizer.json, safetensors."""
