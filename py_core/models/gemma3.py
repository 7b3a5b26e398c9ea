"""Gemma 3, text only (arXiv 2503.19786): Gemma 2 with norms of q and k instead of soft-caps, and two rotations.

Five layers with a window come before each layer that attends to everything. The layers with a window use their own
RoPE base. Norm weights in files already include the added 1.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

GLOBAL_EVERY = 6
"""Layers 5, 11, 17 ... attend to everything."""

LAYERS_OF_27B = 62
"""The 27B model scales attention by hidden / heads, the others by the head size."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    size = c.hidden_size / c.num_attention_heads if c.num_hidden_layers == LAYERS_OF_27B else c.head_dim
    x = blocks.embedding(g, c, math.sqrt(c.hidden_size))
    for layer in range(c.num_hidden_layers):
        # A file without a window has global layers only.
        local = c.sliding_window > 0 and (layer + 1) % GLOBAL_EVERY != 0
        x = blocks.block(
            g, c, x, layer, rotation=c.local_rope if local else c.rope, head_norms=True, scale=1 / math.sqrt(size),
            window=c.sliding_window if local else 0, activation="gelu", post_norms=True,
        )  # fmt: skip
    y = blocks.logits(g, c, x)
    if c.logits_softcap:
        g.soft_cap(y, c.logits_softcap)
