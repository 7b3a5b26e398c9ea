"""Gemma 4, text only, dense: Gemma 3 with norms of values, wider heads in global layers, and embeddings for each layer.

- Layers with a window have their own size of heads, number of heads of keys and values, and rotation. In global layers
  a quarter of the pairs rotates: the file divides the frequencies of the others by 1e30.
- The last layers read the keys and values of the last layer of their kind before them.
- If a layer has no matrix of values, its values are its keys before their norm and rotation.
- Each token has an embedding of some values for each layer. With a projection of the first residual it is the input of
  a third part of the block, after the MLP: residual + norm(proj(gelu(inp_gate(residual)) * input)).
- A number of the layer multiplies what the block leaves.

Norm weights in files are the whole factors. Attention is not scaled: q and k are normalized.

Source: the files of `transformers` (models/gemma4), and llama.cpp's converter for what files have.
"""

from __future__ import annotations

import math
from dataclasses import replace

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Value

PER_LAYER = "per_layer_token_embd.weight"

Cache = tuple[int, Value, Value]
"""The layer whose keys and values others read, too, and these."""


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c, math.sqrt(c.hidden_size))
    inputs = _inputs(g, c, x) if c.per_layer_width else None
    caches: dict[bool, Cache] = {}
    for layer in range(c.num_hidden_layers):
        x = _block(g, c, x, layer, inputs, caches)
    y = blocks.logits(g, c, x)
    if c.logits_softcap:
        g.soft_cap(y, c.logits_softcap)


def _inputs(g: Graph, c: ModelConfig, x: Value) -> Value:
    """The inputs of all layers, side by side: (M, layers * per_layer_width).

    They are (norm(projection / sqrt(hidden)) + sqrt(width) * embedding) / sqrt(2). The norm takes its divisor into eps.
    """
    layers, half = c.num_hidden_layers, math.sqrt(0.5)
    width = layers * c.per_layer_width
    embedded = g.embedding(PER_LAYER, c.vocab_size, width, math.sqrt(c.per_layer_width) * half)
    projected = g.linear(x, "per_layer_model_proj", width)
    eps = c.rms_norm_eps * c.hidden_size
    return g.add(embedded, g.rms_norm(projected, "per_layer_proj_norm.weight", eps, layers, half))


def _block(
    g: Graph, c: ModelConfig, x: Value, layer: int, inputs: Value | None, caches: dict[bool, Cache]
) -> Value:  # fmt: skip
    """One layer. `caches` are those of the last layers with and without a window that have keys and values."""
    name, eps = f"blk.{layer}", c.rms_norm_eps
    c = replace(c, intermediate_size=c.intermediate_sizes[layer])
    a = _attention(g, c, g.rms_norm(x, f"{name}.attn_norm.weight", eps), layer, caches)
    a = g.linear(a, f"{name}.attn_output", c.hidden_size)
    x = g.add(x, g.rms_norm(a, f"{name}.post_attention_norm.weight", eps))
    h = blocks.mlp(g, c, g.rms_norm(x, f"{name}.ffn_norm.weight", eps), name, "gelu")
    x = g.add(x, g.rms_norm(h, f"{name}.post_ffw_norm.weight", eps))
    if inputs:
        h = g.linear(x, f"{name}.inp_gate", c.per_layer_width)
        h = g.linear(g.glu(h, inputs, "gelu", layer * c.per_layer_width), f"{name}.proj", c.hidden_size)
        x = g.add(x, g.rms_norm(h, f"{name}.post_norm.weight", eps))
    if f"{name}.layer_output_scale.weight" in g.tensors:
        x = g.scale(x, f"{name}.layer_output_scale.weight")
    g.tap(f"residual.{layer + 1}", x)
    return x


def _attention(g: Graph, c: ModelConfig, h: Value, layer: int, caches: dict[bool, Cache]) -> Value:
    name, eps, heads, local = f"blk.{layer}", c.rms_norm_eps, c.num_attention_heads, layer in c.local_layers
    kv_heads, size, rotation = c.num_key_value_heads, c.head_dim, c.rope
    if local:
        kv_heads, size, rotation = c.local_kv_heads, c.local_head_dim, c.local_rope
    q = g.rms_norm(g.linear(h, f"{name}.attn_q", heads * size), f"{name}.attn_q_norm.weight", eps, heads)
    q = g.rope(q, heads, False, rotation)
    if appends := layer < c.num_hidden_layers - c.shared_kv_layers:
        k = g.linear(h, f"{name}.attn_k", kv_heads * size)
        v = g.linear(h, f"{name}.attn_v", kv_heads * size) if f"{name}.attn_v.weight" in g.tensors else k
        k = g.rope(g.rms_norm(k, f"{name}.attn_k_norm.weight", eps, kv_heads), kv_heads, False, rotation)
        caches[local] = layer, k, g.rms_norm(v, None, eps, kv_heads)
    else:  # files may have what the model does not use
        g.read_elsewhere |= {f"{name}.{part}.weight" for part in ("attn_k", "attn_v", "attn_k_norm")}
    window = c.sliding_window if local else 0
    return g.attention(caches[local][0], q, *caches[local][1:], heads, kv_heads, 1.0, window=window, appends=appends)
