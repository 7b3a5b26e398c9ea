"""Qwen3 (arXiv 2505.09388): Llama with norms of q and k per head, whose heads rotate in halves."""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size)  # (M, hidden)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q, k, v = blocks.qkv(g, c, h, block)
        q = g.rms_norm(q, f"{block}.attn_q_norm.weight", c.rms_norm_eps, heads)
        k = g.rms_norm(k, f"{block}.attn_k_norm.weight", c.rms_norm_eps, kv_heads)
        q = g.rope(q, heads, interleaved=False, rotation=c.rope)
        k = g.rope(k, kv_heads, interleaved=False, rotation=c.rope)
        a = g.attention(layer, q, k, v, heads, kv_heads, 1 / math.sqrt(c.head_dim))
        x = g.add(x, g.linear(a, f"{block}.attn_output", c.hidden_size))
        h = g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps)
        x = g.add(x, blocks.mlp(g, c, h, block))
        g.tap(f"residual.{layer + 1}", x)
    blocks.logits(g, c, x)
