"""Llama (arXiv 2302.13971): RMSNorm, rotary grouped-query attention, SwiGLU. SmolLM2 and Mistral are of these.

Biases are optional tensors. Mistral's files do not tell its window, and llama.cpp attends to everything.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens; its output is the logits (M, vocab_size) after each.

    Taps: "residual.N", the residual after N blocks (N = 1 .. num_hidden_layers), and "final_norm".
    """
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size)  # (M, hidden)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q, k, v = blocks.qkv(g, c, h, block)
        # llama.cpp permutes Llama's q and k rows when it converts, so that a pair's halves are neighbours.
        q = g.rope(q, heads, interleaved=True, rotation=c.rope)
        k = g.rope(k, kv_heads, interleaved=True, rotation=c.rope)
        a = g.attention(layer, q, k, v, heads, kv_heads, 1 / math.sqrt(c.head_dim))
        x = g.add(x, g.linear(a, f"{block}.attn_output", c.hidden_size))
        h = g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps)
        x = g.add(x, blocks.mlp(g, c, h, block))
        g.tap(f"residual.{layer + 1}", x)
    blocks.logits(g, c, x)
