"""Writes tiny models of every architecture, whose random weights are so large that leaving anything out shows.

Their tokenizer is that of the tiny Llama.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from py_core.formats.gguf_writer import write_gguf
from py_core.formats.quantization import FORMATS
from tests.tiny_llama import TinyLlama

TOKENIZER = {key: value for key, value in TinyLlama().metadata().items() if key.startswith("tokenizer.")}
VOCABULARY = len(TinyLlama().tokens)


@dataclass(frozen=True)
class TinyModel:
    """`biased` are the linears that have a bias, `formats` those in another format than Q8_0, by their names.

    `fused` has q, k and v in one tensor, and gate and up, if these are not `gate_apart`.
    """

    architecture: str
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    layers: int = 3
    rotated: int = 0
    biased: tuple[str, ...] = ()
    head_norms: bool = False
    post_norms: bool = False
    fused: bool = False
    gate_apart: bool = False
    long_rope: bool = False
    tied: bool = True
    formats: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        rng = np.random.default_rng(7)
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "attn_q": (q, self.hidden),
            "attn_k": (kv, self.hidden),
            "attn_v": (kv, self.hidden),
        }
        shapes |= {"ffn_gate": (self.ffn, self.hidden), "ffn_up": (self.ffn, self.hidden)}
        if self.fused:
            gates = {name: shape for name, shape in shapes.items() if name.startswith("ffn") and self.gate_apart}
            shapes = {"attn_qkv": (q + 2 * kv, self.hidden), "ffn_up": (2 * self.ffn, self.hidden), **gates}
        shapes |= {"attn_output": (self.hidden, q), "ffn_down": (self.hidden, self.ffn)}
        norms = {"attn_norm": self.hidden, "ffn_norm": self.hidden}
        if self.head_norms:
            norms |= {"attn_q_norm": self.head_dim, "attn_k_norm": self.head_dim}
        if self.post_norms:
            norms |= {"post_attention_norm": self.hidden, "post_ffw_norm": self.hidden}

        def matrix(name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, object]:
            values = (rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)
            return values, FORMATS[self.formats.get(name, "Q8_0")]

        def vector(size: int, mean: float, spread: float) -> tuple[np.ndarray, object]:
            return (mean + rng.standard_normal(size) * spread).astype(np.float32), FORMATS["F32"]

        tensors = {"token_embd.weight": matrix("token_embd", (VOCABULARY, self.hidden))}
        for layer in range(self.layers):
            for name, shape in shapes.items():
                tensors[f"blk.{layer}.{name}.weight"] = matrix(name, shape)
                if name in self.biased:
                    tensors[f"blk.{layer}.{name}.bias"] = vector(shape[0], 0, 0.7)
            for name, size in norms.items():
                tensors[f"blk.{layer}.{name}.weight"] = vector(size, 1.2, 0.4)
        if self.long_rope:
            for name in ("rope_factors_long", "rope_factors_short"):
                tensors[f"{name}.weight"] = vector((self.rotated or self.head_dim) // 2, 2, 0.3)
        tensors["output_norm.weight"] = vector(self.hidden, 1.2, 0.4)
        if not self.tied:
            tensors["output.weight"] = matrix("output", (VOCABULARY, self.hidden))
        write_gguf(path, self.metadata(), tensors)  # type: ignore[arg-type]
        return path

    def metadata(self) -> dict[str, object]:
        settings = {
            "embedding_length": self.hidden,
            "feed_forward_length": self.ffn,
            "block_count": self.layers,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 500.0,
            "rope.dimension_count": self.rotated or self.head_dim,
            "context_length": 512,
            **self.settings,
        }
        named = {f"{self.architecture}.{key}": value for key, value in settings.items()}
        return {"general.architecture": self.architecture, "general.name": "tiny", **named, **TOKENIZER}


GEMMA2 = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0, "attention.sliding_window": 150}
GEMMA3 = {"attention.sliding_window": 40, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}

TINY_MODELS = {
    "llama with every bias": TinyModel(
        "llama", biased=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
        formats={"attn_output": "Q4_1", "ffn_down": "F16"},
    ),
    "llama with biases of q and v": TinyModel(
        "llama", biased=("attn_q", "attn_v", "ffn_up"), tied=False,
        formats={"attn_k": "F16", "attn_v": "Q4_1", "ffn_gate": "Q4_0", "output": "F32"},
    ),
    "llama in fused tensors": TinyModel("llama", fused=True, gate_apart=True, biased=("attn_qkv",), kv_heads=1),
    "qwen2": TinyModel("qwen2", biased=("attn_q", "attn_k", "attn_v")),
    "qwen3": TinyModel("qwen3", head_norms=True, head_dim=32),
    "phi3": TinyModel(
        "phi3", fused=True, rotated=12, long_rope=True, formats={"attn_qkv": "Q4_1"},
        settings={"rope.scaling.attn_factor": 1.2, "rope.scaling.original_context_length": 128},
    ),
    "gemma2": TinyModel("gemma2", post_norms=True, head_dim=24, settings=GEMMA2),
    "gemma3": TinyModel("gemma3", post_norms=True, head_norms=True, kv_heads=1, layers=7, settings=GEMMA3),
    "smollm3": TinyModel("smollm3", layers=5),
}  # fmt: skip
"""gemma3 has 7 layers, since its sixth is the first without a window, smollm3 5, since its fourth does not rotate."""
