"""OLMoE (arXiv 2409.02060): Llama with norms over all of q and k, and a mixture of experts instead of each MLP.

The shares of a row's experts are those of a softmax over all experts, and are not divided by their sum.
"""

from __future__ import annotations

import math

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Value


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        x = _block(g, c, x, layer)
    blocks.logits(g, c, x)


def _block(g: Graph, c: ModelConfig, x: Value, layer: int) -> Value:
    name, heads, kv_heads = f"blk.{layer}", c.num_attention_heads, c.num_key_value_heads
    q, k, v = blocks.qkv(g, c, g.rms_norm(x, f"{name}.attn_norm.weight", c.rms_norm_eps), name)
    q = g.rms_norm(q, f"{name}.attn_q_norm.weight", c.rms_norm_eps)
    k = g.rms_norm(k, f"{name}.attn_k_norm.weight", c.rms_norm_eps)
    q, k = g.rope(q, heads, False, c.rope), g.rope(k, kv_heads, False, c.rope)
    a = g.attention(layer, q, k, v, heads, kv_heads, 1 / math.sqrt(c.head_dim))
    x = g.add(x, g.linear(a, f"{name}.attn_output", c.hidden_size))
    h = g.rms_norm(x, f"{name}.ffn_norm.weight", c.rms_norm_eps)
    x = g.add(x, blocks.moe(g, c, h, name, normalized=False))
    g.tap(f"residual.{layer + 1}", x)
    return x
