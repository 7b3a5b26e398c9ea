"""Phi-3, Phi-3.5 and Phi-4-mini (arXiv 2404.14219): Llama with fused matrices and LongRoPE.

attn_qkv holds q, k and v, ffn_up the gate above up. Phi-4-mini rotates only the first values of a head. Files may
have a window, which llama.cpp does not use.
"""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        x = blocks.block(g, c, x, layer, rotation=c.rope, fused_gate=True)
    blocks.logits(g, c, x)
