"""The shared parts of the architectures: the embedding, a block of attention and MLP, and the logits.

Each architecture's own file gives the settings, and the layers that use them.
"""

from __future__ import annotations

import math

from py_core.models.config import ModelConfig
from py_core.models.graph import Activation, Graph, Value
from py_core.models.rotation import Rotation


def embedding(g: Graph, c: ModelConfig, scale: float = 1.0) -> Value:
    """The tokens' rows of the embedding: (M, hidden)."""
    return g.embedding("token_embd.weight", c.vocab_size, c.hidden_size, scale)


def block(
    g: Graph, c: ModelConfig, x: Value, layer: int, *, rotation: Rotation | None, interleaved: bool = False,
    qkv_bias: bool = False, head_norms: bool = False, scale: float | None = None, softcap: float = 0.0, window: int = 0,
    activation: Activation = "silu", fused_gate: bool = False, post_norms: bool = False,
) -> Value:  # fmt: skip
    """One layer: y = x + attention(norm(x)), then y + mlp(norm(y)); returns this residual (M, hidden). A model with
    experts has a mixture of them, whose shares sum up to 1, instead of the MLP.

    rotation: of q and k, None if they do not rotate; interleaved: neighbours rotate, else halves of a head
    qkv_bias, fused_gate: the contents of the file, see `qkv` and `mlp`
    head_norms: each head of q and k is normalized before it rotates
    scale, softcap, window: as in `Graph.attention`; if scale is None it is 1 / sqrt(head_dim)
    post_norms: attention's and the MLP's outputs are normalized before they are added

    Tap: "residual.N", N = layer + 1.
    """
    name, heads, kv_heads = f"blk.{layer}", c.num_attention_heads, c.num_key_value_heads
    h = g.rms_norm(x, f"{name}.attn_norm.weight", c.rms_norm_eps)
    q, k, v = qkv(g, c, h, name, qkv_bias)
    if head_norms:
        q = g.rms_norm(q, f"{name}.attn_q_norm.weight", c.rms_norm_eps, heads)
        k = g.rms_norm(k, f"{name}.attn_k_norm.weight", c.rms_norm_eps, kv_heads)
    if rotation:
        q = g.rope(q, heads, interleaved, rotation)
        k = g.rope(k, kv_heads, interleaved, rotation)
    scale = 1 / math.sqrt(c.head_dim) if scale is None else scale
    a = g.attention(layer, q, k, v, heads, kv_heads, scale, softcap, window)
    a = g.linear(a, f"{name}.attn_output", c.hidden_size)
    if post_norms:
        a = g.rms_norm(a, f"{name}.post_attention_norm.weight", c.rms_norm_eps)
    x = g.add(x, a)
    h = g.rms_norm(x, f"{name}.ffn_norm.weight", c.rms_norm_eps)
    h = moe(g, c, h, name, normalized=True) if c.experts else mlp(g, c, h, name, activation, fused_gate)
    if post_norms:
        h = g.rms_norm(h, f"{name}.post_ffw_norm.weight", c.rms_norm_eps)
    x = g.add(x, h)
    g.tap(f"residual.{layer + 1}", x)
    return x


def qkv(g: Graph, c: ModelConfig, h: Value, block: str, bias: bool = False) -> tuple[Value, Value, Value]:
    """Queries (M, heads * head_dim), keys and values (M, kv_heads * head_dim) of h, from one tensor or from three.

    With `bias` the file must have their biases; otherwise they are added if it has them.
    """
    q_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    fused = f"{block}.attn_qkv.weight" in g.tensors
    if bias:
        for name in ("attn_qkv",) if fused else ("attn_q", "attn_k", "attn_v"):
            g.require(f"{block}.{name}.bias")
    if fused:
        q, k, v = g.linears(h, f"{block}.attn_qkv", [q_width, kv_width, kv_width])
        return q, k, v
    q = g.linear(h, f"{block}.attn_q", q_width)
    k = g.linear(h, f"{block}.attn_k", kv_width)
    return q, k, g.linear(h, f"{block}.attn_v", kv_width)


def mlp(g: Graph, c: ModelConfig, h: Value, block: str, activation: Activation = "silu", fused: bool = False) -> Value:
    """ffn_down(activation(gate) * up): (M, hidden). With `fused` the tensor ffn_up holds the gate above up."""
    n = c.intermediate_size
    if fused:
        gate, up = g.linears(h, f"{block}.ffn_up", [n, n])
    else:
        gate, up = g.linear(h, f"{block}.ffn_gate", n), g.linear(h, f"{block}.ffn_up", n)
    return g.linear(g.glu(gate, up, activation), f"{block}.ffn_down", c.hidden_size)


def moe(g: Graph, c: ModelConfig, h: Value, block: str, normalized: bool) -> Value:
    """The MLPs of the experts that ffn_gate_inp chooses for each row, by their shares: (M, hidden).

    normalized: the shares of a row are divided by their sum
    """
    n, hidden = c.intermediate_size, c.hidden_size
    route = g.route(g.linear(h, f"{block}.ffn_gate_inp", c.experts), c.experts_used, normalized)
    gate = g.expert_linear(h, route, f"{block}.ffn_gate_exps", c.experts, n, hidden)
    up = g.expert_linear(h, route, f"{block}.ffn_up_exps", c.experts, n, hidden)
    down = g.expert_linear(g.glu(gate, up), route, f"{block}.ffn_down_exps", c.experts, hidden, n)
    return g.mix(down, route)


def logits(g: Graph, c: ModelConfig, x: Value, factor: float = 1.0, norm: str = "output_norm") -> Value:
    """The final norm and the output matrix, or the embedding if the file has no output matrix: (M, vocab_size).

    `factor` multiplies the logits, and thus the norm. `norm` is its name in the file.
    Tap: "final_norm", the input of the output matrix.
    """
    x = g.rms_norm(x, f"{norm}.weight", c.rms_norm_eps, factor=factor)
    g.tap("final_norm", x)
    return g.linear(x, "token_embd" if c.tie_word_embeddings else "output", c.vocab_size)
