"""LFM2 and LFM2.5: in most layers a short gated convolution takes the place of attention.

The other layers are Qwen3's. The file says which layers convolve: they have no heads of keys and values. Its last norm
is called token_embd_norm.

Source: https://github.com/huggingface/transformers/blob/main/src/transformers/models/lfm2/modeling_lfm2.py
"""

from __future__ import annotations

from py_core.models import blocks
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Value


def describe(c: ModelConfig, g: Graph) -> None:
    """The forward pass over M tokens: logits (M, vocab_size). Taps as in llama.py."""
    x = blocks.embedding(g, c)
    for layer in range(c.num_hidden_layers):
        if layer in c.conv_layers:
            x = _conv_block(g, c, x, layer)
        else:
            x = blocks.block(g, c, x, layer, rotation=c.rope, head_norms=True)
    blocks.logits(g, c, x, norm="token_embd_norm")


def _conv_block(g: Graph, c: ModelConfig, x: Value, layer: int) -> Value:
    """y = x + conv(norm(x)), then y + mlp(norm(y)): (M, hidden)."""
    name, hidden = f"blk.{layer}", c.hidden_size
    h = g.rms_norm(x, f"{name}.attn_norm.weight", c.rms_norm_eps)
    h = g.linear(h, f"{name}.shortconv.in_proj", 3 * hidden)
    h = g.short_conv(layer, h, f"{name}.shortconv.conv.weight", c.conv_taps)
    x = g.add(x, g.linear(h, f"{name}.shortconv.out_proj", hidden))
    h = g.rms_norm(x, f"{name}.ffn_norm.weight", c.rms_norm_eps)
    x = g.add(x, blocks.mlp(g, c, h, name))
    g.tap(f"residual.{layer + 1}", x)
    return x
