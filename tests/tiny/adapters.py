"""Sets of LoRA matrices for tiny models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.formats.gguf_writer import write_gguf
from py_core.formats.quantization.blocks import F32
from py_core.models.graph import Graph


def drawn(graph: Graph, seed: int, rank: int = 8, only: str = "") -> LoraAdapter:
    """A set with a visible effect: as large as a tenth of the weights."""
    draw = np.random.default_rng(seed)
    pairs = {}
    for name in sorted(graph.linear_weights):
        rows, columns = graph.weights[name]
        if only in name:
            a = draw.standard_normal((rank, columns)).astype(np.float32)
            b = draw.standard_normal((rows, rank)).astype(np.float32)
            pairs[name] = LoraPair(a, b, 0.3 / (rank * columns) ** 0.5)
    return LoraAdapter(f"drawn {seed}", pairs)


def write_gguf_adapter(adapter: LoraAdapter, path: Path) -> Path:
    """Writes a set as llama.cpp's convert_lora_to_gguf.py does."""
    values = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    tensors = {}
    for name, pair in adapter.pairs.items():
        tensors |= {f"{name}.lora_a": (pair.a, F32), f"{name}.lora_b": (pair.b * np.float32(pair.scale), F32)}
    write_gguf(path, values | {"adapter.lora.alpha": float(adapter.rank)}, tensors)
    return path
