"""Llama (arXiv 2302.13971): RMSNorm, rotary grouped-query attention, SwiGLU, no biases. SmolLM2 is one of these."""

from __future__ import annotations

from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


def describe(c: ModelConfig) -> Graph:
    """The forward pass over M tokens; its output is the logits (M, vocab_size) after each.

    Taps: "residual.N", the residual after N blocks (N = 1 .. num_hidden_layers), and "final_norm", the head's input.
    """
    g = Graph()
    q_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    x = g.embedding("token_embd.weight", c.vocab_size, c.hidden_size)  # (M, hidden)
    for layer in range(c.num_hidden_layers):
        block = f"blk.{layer}"
        h = g.rms_norm(x, f"{block}.attn_norm.weight", c.rms_norm_eps)
        q = g.linear(h, f"{block}.attn_q.weight", q_width)  # (M, heads * head_dim)
        k = g.linear(h, f"{block}.attn_k.weight", kv_width)  # (M, kv_heads * head_dim)
        v = g.linear(h, f"{block}.attn_v.weight", kv_width)
        # llama.cpp permutes Llama's q and k rows when it converts, so that a pair's halves are neighbours.
        q = g.rope(q, c.num_attention_heads, interleaved=True)
        k = g.rope(k, c.num_key_value_heads, interleaved=True)
        a = g.attention(layer, q, k, v, c.num_attention_heads, c.num_key_value_heads)
        x = g.add(x, g.linear(a, f"{block}.attn_output.weight", c.hidden_size))
        h = g.rms_norm(x, f"{block}.ffn_norm.weight", c.rms_norm_eps)
        gate = g.linear(h, f"{block}.ffn_gate.weight", c.intermediate_size)  # (M, intermediate)
        up = g.linear(h, f"{block}.ffn_up.weight", c.intermediate_size)
        x = g.add(x, g.linear(g.swiglu(gate, up), f"{block}.ffn_down.weight", c.hidden_size))
        g.tap(f"residual.{layer + 1}", x)
    x = g.rms_norm(x, "output_norm.weight", c.rms_norm_eps)
    g.tap("final_norm", x)
    g.linear(x, "token_embd.weight" if c.tie_word_embeddings else "output.weight", c.vocab_size)
    return g
