"""Writes tiny Llama models with random weights and a byte-level tokenizer: real files, small enough for every test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from py_core.formats.gguf_writer import write_gguf
from py_core.formats.quantization import FORMATS
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class TinyLlama:
    """`formats` are those of q, k, v, output, gate, up, down in this order, or one for all."""

    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 96
    layers: int = 2
    context: int = 512
    formats: tuple[str, ...] = ("Q4_1",)
    embedding_format: str = "Q8_0"
    norm_format: str = "F32"
    tied: bool = True
    seed: int = 0

    @property
    def tokens(self) -> list[str]:
        return [*SPECIAL, *BYTE_TO_CHAR.values()]

    def write(self, path: Path) -> Path:
        rng = np.random.default_rng(self.seed)
        head_dim = self.hidden // self.heads
        kv = self.kv_heads * head_dim
        shapes = {
            "attn_q": (self.hidden, self.hidden), "attn_k": (kv, self.hidden), "attn_v": (kv, self.hidden),
            "attn_output": (self.hidden, self.hidden), "ffn_gate": (self.ffn, self.hidden),
            "ffn_up": (self.ffn, self.hidden), "ffn_down": (self.hidden, self.ffn),
        }  # fmt: skip
        formats = self.formats if len(self.formats) == 7 else self.formats * 7

        def matrix(shape: tuple[int, ...]) -> np.ndarray:
            return (rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)

        def norm() -> np.ndarray:
            return (1 + rng.standard_normal(self.hidden) * 0.1).astype(np.float32)

        vocab = len(self.tokens)
        tensors = {"token_embd.weight": (matrix((vocab, self.hidden)) * 4, FORMATS[self.embedding_format])}
        for layer in range(self.layers):
            for (name, shape), form in zip(shapes.items(), formats, strict=True):
                tensors[f"blk.{layer}.{name}.weight"] = (matrix(shape), FORMATS[form])
            for name in ("attn_norm", "ffn_norm"):
                tensors[f"blk.{layer}.{name}.weight"] = (norm(), FORMATS[self.norm_format])
        tensors["output_norm.weight"] = (norm(), FORMATS[self.norm_format])
        if not self.tied:
            tensors["output.weight"] = (matrix((vocab, self.hidden)), FORMATS[self.embedding_format])
        write_gguf(path, self.metadata(), tensors)
        return path

    def metadata(self) -> dict[str, object]:
        return {
            "general.architecture": "llama",
            "general.name": "tiny",
            "llama.embedding_length": self.hidden,
            "llama.feed_forward_length": self.ffn,
            "llama.block_count": self.layers,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            "llama.rope.dimension_count": self.hidden // self.heads,
            "llama.context_length": self.context,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": self.tokens,
            "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * 256,
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": CHATML,
        }
