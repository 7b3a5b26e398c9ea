"""Qwen2 and Qwen2.5 (arXiv 2407.10671): Llama with biases of q, k and v, whose heads rotate in halves."""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        x = blocks.block(g, c, x, layer, rotation=c.rope, qkv_bias=True)
    blocks.logits(g, c, x)
