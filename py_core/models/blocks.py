"""What the architectures' blocks have in common: linears that a file may hold apart or fused in one tensor."""

from __future__ import annotations

from py_core.models.config import ModelConfig
from py_core.models.graph import Activation, Graph, Value


def qkv(g: Graph, c: ModelConfig, h: Value, block: str, bias: bool = False) -> tuple[Value, Value, Value]:
    """Queries (M, heads * head_dim), keys and values (M, kv_heads * head_dim) of h, by one tensor or by three.

    With `bias` the file must have their biases; otherwise they are added where it has them.
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


def logits(g: Graph, c: ModelConfig, x: Value) -> Value:
    """The final norm and the output matrix, which is the embedding where the file has no other: (M, vocab_size).

    Tap: "final_norm", what the output matrix reads.
    """
    x = g.rms_norm(x, "output_norm.weight", c.rms_norm_eps)
    g.tap("final_norm", x)
    return g.linear(x, "token_embd" if c.tie_word_embeddings else "output", c.vocab_size)
