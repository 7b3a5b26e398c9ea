"""Gemma 2 (arXiv 2408.00118): four norms a block, windows in even layers, soft-caps, GeGLU, a scaled embedding.

Norm weights in files already have the 1 added. Files do not say which layers have the window, nor the scale.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

LAYERS_OF_27B = 46
"""The 27B model scales attention by hidden / heads, the others by the size of a head."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    scale = 1 / math.sqrt(c.hidden_size / heads if c.num_hidden_layers == LAYERS_OF_27B else c.head_dim)
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size, math.sqrt(c.hidden_size))  # (M, hidden)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q, k, v = blocks.qkv(g, c, h, block)
        q = g.rope(q, heads, interleaved=False, rotation=c.rope)
        k = g.rope(k, kv_heads, interleaved=False, rotation=c.rope)
        window = c.sliding_window if layer % 2 == 0 else 0
        a = g.attention(layer, q, k, v, heads, kv_heads, scale, c.attention_softcap, window)
        a = g.linear(a, f"{block}.attn_output", c.hidden_size)
        x = g.add(x, g.rms_norm(a, f"{block}.post_attention_norm.weight", c.rms_norm_eps))
        h = g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps)
        h = blocks.mlp(g, c, h, block, "gelu")
        x = g.add(x, g.rms_norm(h, f"{block}.post_ffw_norm.weight", c.rms_norm_eps))
        g.tap(f"residual.{layer + 1}", x)
    y = blocks.logits(g, c, x)
    if c.logits_softcap:
        g.soft_cap(y, c.logits_softcap)
