"""SmolLM3: Llama without rotation in every fourth layer (NoPE, arXiv 2501.18795). Files do not contain which layers."""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

UNROTATED_EVERY = 4
"""Layers 3, 7, 11 ... are not rotated."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        rotated = (layer + 1) % UNROTATED_EVERY != 0
        x = blocks.block(g, c, x, layer, rotation=c.rope if rotated else None, interleaved=True)
    blocks.logits(g, c, x)
