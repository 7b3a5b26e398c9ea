"""Llama (arXiv 2302.13971): RMSNorm, rotary grouped-query attention, SwiGLU. SmolLM2 and Mistral use it, too.

Biases are optional tensors. Mistral's files do not contain its window, and llama.cpp attends to everything.
"""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens; its output is the logits (M, vocab_size) after each.

    Taps: "residual.N", the residual after N blocks (N = 1 .. num_hidden_layers), and "final_norm".
    """
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        # llama.cpp permutes Llama's q and k rows when it converts, so that the two values of a pair are neighbours.
        x = blocks.block(g, c, x, layer, rotation=c.rope, interleaved=True)
    blocks.logits(g, c, x)
