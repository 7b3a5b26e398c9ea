"""Gemma 3, text (arXiv 2503.19786): as Gemma 2, with norms of q and k instead of soft-caps, and two rotations.

Five layers with a window stand before each layer that sees everything; those rotate by a base of their own. Norm
weights in files already have the 1 added.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

GLOBAL_EVERY = 6
"""Layers 5, 11, 17 ... see everything."""

LAYERS_OF_27B = 62
"""The 27B model scales attention by hidden / heads, the others by the size of a head."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    scale = 1 / math.sqrt(c.hidden_size / heads if c.num_hidden_layers == LAYERS_OF_27B else c.head_dim)
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size, math.sqrt(c.hidden_size))  # (M, hidden)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        # A file without a window has global layers only.
        local = c.sliding_window > 0 and (layer + 1) % GLOBAL_EVERY != 0
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q, k, v = blocks.qkv(g, c, h, block)
        q = g.rms_norm(q, f"{block}.attn_q_norm.weight", c.rms_norm_eps, heads)
        k = g.rms_norm(k, f"{block}.attn_k_norm.weight", c.rms_norm_eps, kv_heads)
        rotation = c.local_rope if local else c.rope
        q = g.rope(q, heads, interleaved=False, rotation=rotation)
        k = g.rope(k, kv_heads, interleaved=False, rotation=rotation)
        a = g.attention(layer, q, k, v, heads, kv_heads, scale, window=c.sliding_window if local else 0)
        a = g.linear(a, f"{block}.attn_output", c.hidden_size)
        x = g.add(x, g.rms_norm(a, f"{block}.post_attention_norm.weight", c.rms_norm_eps))
        h = g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps)
        h = blocks.mlp(g, c, h, block, "gelu")
        x = g.add(x, g.rms_norm(h, f"{block}.post_ffw_norm.weight", c.rms_norm_eps))
        g.tap(f"residual.{layer + 1}", x)
    y = blocks.logits(g, c, x)
    if c.logits_softcap:
        g.soft_cap(y, c.logits_softcap)
