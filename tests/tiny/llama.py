"""Tiny Llamas in a few words: real files, small enough for every test."""

from __future__ import annotations

from itertools import cycle

from tests.tiny.models import ALL_BYTES, Variant

PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class TinyLlama(Variant):
    """`formats` are the formats of q, k, v, output, gate, up, down in this order, or one for all."""

    def __init__(
        self,
        hidden: int = 64,
        heads: int = 4,
        kv_heads: int = 2,
        ffn: int = 96,
        layers: int = 2,
        context: int = 512,
        formats: tuple[str, ...] = ("Q4_1",),
        embedding_format: str = "Q8_0",
        norm_format: str = "F32",
        tied: bool = True,
        seed: int = 0,
        embedding_spread: float = 0.4,
    ) -> None:
        config = {
            "vocab_size": ALL_BYTES,
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": tied,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        }
        by_part = dict(zip(PARTS, cycle(formats)))
        by_part |= dict.fromkeys(("token_embd", "output"), embedding_format)
        by_part |= dict.fromkeys(("attn_norm", "ffn_norm", "output_norm"), norm_format)
        super().__init__(
            "tiny", "llama", "Llama", config, formats=by_part, seed=seed, embedding_spread=embedding_spread
        )
