"""Qwen 3.5, text only: in three of four layers a gated delta rule takes the place of attention (arXiv 2412.06464).

q, k and v of such a layer pass a short convolution. The other layers are Qwen3's, with a gate for attention's output.
The file says which layers are which. Its norm weights include the added 1, except for that of the delta rule's output.
The rotation has sections for places in pictures; in a text all of them have the token's position.

Source: https://github.com/huggingface/transformers/blob/main/src/transformers/models/qwen3_5/modeling_qwen3_5.py
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
        name = f"blk.{layer}"
        h = g.rms_norm(x, f"{name}.attn_norm.weight", c.rms_norm_eps)
        x = g.add(x, _delta_rule(g, c, h, layer) if layer in c.conv_layers else _attention(g, c, h, layer))
        h = g.rms_norm(x, f"{name}.post_attention_norm.weight", c.rms_norm_eps)
        x = g.add(x, blocks.mlp(g, c, h, name))
        g.tap(f"residual.{layer + 1}", x)
    blocks.logits(g, c, x)
    # The blocks behind the last layer guess further tokens: a draft, which nothing here needs.
    blocks_run = tuple(f"blk.{layer}." for layer in range(c.num_hidden_layers))
    g.read_elsewhere |= {name for name in g.tensors if name.startswith("blk.") and not name.startswith(blocks_run)}


def _delta_rule(g: Graph, c: ModelConfig, h: Value, layer: int) -> Value:
    """out(silu(z) * norm(delta(conv(qkv)))): (M, hidden)."""
    name, heads = f"blk.{layer}", c.value_heads
    x = g.linear(h, f"{name}.attn_qkv", (2 * c.key_heads + heads) * c.state_size)
    z = g.linear(h, f"{name}.attn_gate", heads * c.state_size)
    alpha, beta = g.linear(h, f"{name}.ssm_alpha", heads), g.linear(h, f"{name}.ssm_beta", heads)
    x = g.short_conv(layer, x, f"{name}.ssm_conv1d.weight", c.conv_taps, gated=False)
    x = g.delta_rule(layer, x, alpha, beta, f"{name}.ssm_a", f"{name}.ssm_dt.bias", c.key_heads)
    x = g.rms_norm(x, f"{name}.ssm_norm.weight", c.rms_norm_eps, heads)
    return g.linear(g.glu(z, x), f"{name}.ssm_out", c.hidden_size)


def _attention(g: Graph, c: ModelConfig, h: Value, layer: int) -> Value:
    """out(sigmoid(gate) * attention(q, k, v)): (M, hidden). In the file each head's gate is below its q."""
    name, heads, kv_heads, size = f"blk.{layer}", c.num_attention_heads, c.num_key_value_heads, c.head_dim
    both = g.linear(h, f"{name}.attn_q", 2 * heads * size)
    k, v = g.linear(h, f"{name}.attn_k", kv_heads * size), g.linear(h, f"{name}.attn_v", kv_heads * size)
    q = g.rms_norm(g.half(both, size, second=False), f"{name}.attn_q_norm.weight", c.rms_norm_eps, heads)
    k = g.rms_norm(k, f"{name}.attn_k_norm.weight", c.rms_norm_eps, kv_heads)
    q, k = g.rope(q, heads, False, c.rope), g.rope(k, kv_heads, False, c.rope)
    a = g.attention(layer, q, k, v, heads, kv_heads, 1 / math.sqrt(size))
    a = g.glu(g.half(both, size, second=True), a, "sigmoid")
    return g.linear(a, f"{name}.attn_output", c.hidden_size)
