"""Gemma 2 (arXiv 2408.00118): four norms per block, windows in even layers, soft-caps, GeGLU, a scaled embedding.

Norm weights in files already include the added 1. Files contain neither the layers with a window nor the scale.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

LAYERS_OF_27B = 46
"""The 27B model scales attention by hidden / heads, the others by the head size."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    size = c.hidden_size / c.num_attention_heads if c.num_hidden_layers == LAYERS_OF_27B else c.head_dim
    x = blocks.embedding(g, c, math.sqrt(c.hidden_size))
    for layer in range(c.num_hidden_layers):
        window = c.sliding_window if layer % 2 == 0 else 0
        x = blocks.block(
            g, c, x, layer, rotation=c.rope, scale=1 / math.sqrt(size), softcap=c.attention_softcap, window=window,
            activation="gelu", post_norms=True,
        )  # fmt: skip
    y = blocks.logits(g, c, x)
    if c.logits_softcap:
        g.soft_cap(y, c.logits_softcap)
