"""The tiny models as data: one for every convention by which files of an architecture differ.

The sizes repeat, so that a software GPU compiles few kernels. Windows are shorter than the text; numbers that would
hardly be visible in such a small model (soft-caps, factors, epsilon) are stronger than a real model's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tests.tiny.models import ALL_BYTES, CONTEXT, Variant

WINDOW = 16
VOCABULARY = 128

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 0.1,
    "tie_word_embeddings": False,
}
WIDE_HEADS = {"head_dim": 24}
"""Not hidden / heads, which is 16."""


def rope(kind: str = "default", theta: float = 10000.0, **values: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": theta, **values}


LLAMA = Variant("llama", "llama", "Llama", {**SIZES, "rope_parameters": rope()})
LLAMA_3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
LLAMAS = [
    LLAMA,
    LLAMA.changed("llama-tied", tie_word_embeddings=True),
    LLAMA.changed("llama-linear", rope_parameters=rope("linear", factor=4.0)),
    LLAMA.changed("llama-3-rope", rope_parameters=LLAMA_3),
    LLAMA.changed("llama-yarn", rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    LLAMA.changed("llama-biases", attention_bias=True, mlp_bias=True),
    replace(LLAMA, name="llama-fused-qkv", fused_qkv=True, format="Q4_1"),
    replace(
        LLAMA,
        name="mistral",
        transformers="Mistral",
        config={**SIZES, **WIDE_HEADS, "rope_parameters": rope(theta=1e6), "sliding_window": None},
    ),
]

QWENS = [
    Variant(
        "qwen2", "qwen2", "Qwen2", {**SIZES, "rope_parameters": rope(theta=1e6)},
        format="Q8_0", padding=29,
    ),
    Variant(
        "qwen3", "qwen3", "Qwen3",
        {**SIZES, **WIDE_HEADS, "rope_parameters": rope(theta=1e6), "tie_word_embeddings": True},
        format="BF16",
    ),
]  # fmt: skip

DIFFUSIONS = [
    Variant(
        "a2d-qwen2", "a2d-qwen2", "Qwen2", {**SIZES, "rope_parameters": rope(theta=1e6)}, format="Q8_0",
        diffusion=(8, False),
    ),
    Variant(
        "a2d-qwen3", "a2d-qwen3", "Qwen3",
        {**SIZES, **WIDE_HEADS, "rope_parameters": rope(theta=1e6), "tie_word_embeddings": True}, diffusion=(32, False),
    ),
    Variant("dream", "dream", "Qwen2", {**SIZES, "rope_parameters": rope(theta=1e6)}, diffusion=(0, True)),
    Variant("llada", "llada", "Llama", {**SIZES, "rope_parameters": rope()}, diffusion=(0, False)),
]  # fmt: skip

# phi-4-mini's: three quarters of a head of 32 rotate.
PARTIAL = {**SIZES, "num_attention_heads": 2, "num_key_value_heads": 1}
ROTATED = 24
LONGROPE = Variant(
    "phi3-longrope",
    "phi3",
    "Phi3",
    {
        **PARTIAL,
        "tie_word_embeddings": True,
        "original_max_position_embeddings": 96,
        "sliding_window": None,
        "rope_parameters": rope(
            "longrope",
            partial_rotary_factor=0.75,
            short_factor=[1 + 0.125 * pair for pair in range(ROTATED // 2)],
            long_factor=[1.5 + 0.75 * pair for pair in range(ROTATED // 2)],
        ),
    },
    metadata={"attention.sliding_window": 0},
    context=96,
)
PHIS = [
    Variant(
        "phi3", "phi3", "Phi3",
        {**SIZES, "original_max_position_embeddings": CONTEXT, "rope_parameters": rope(), "sliding_window": None},
        metadata={"attention.sliding_window": WINDOW},
    ),
    Variant(
        "phi3-partial", "phi3", "Phi3",
        {**PARTIAL, "original_max_position_embeddings": CONTEXT, "sliding_window": None,
         "rope_parameters": rope(partial_rotary_factor=0.75)},
        metadata={"attention.sliding_window": WINDOW}, format="Q8_0",
    ),
    LONGROPE,
    # The same file with room for more than the original context: the long factors apply from the first token on.
    replace(LONGROPE, name="phi3-longrope-long", positions=104, context=CONTEXT),
]  # fmt: skip

GEMMA = {
    **SIZES,
    "head_dim": 32,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 32,
    "sliding_window": WINDOW,
}
# The 27B models are recognized by their number of layers; they scale by hidden / heads.
GEMMA_27B = {**GEMMA, "query_pre_attn_scalar": 16}
GEMMA2 = {"rope_parameters": rope(), "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}


def two_ropes(local: float, **values: Any) -> dict[str, Any]:
    return {"full_attention": {**rope(theta=1e6), **values}, "sliding_attention": rope(theta=local)}


GEMMAS = [
    Variant("gemma2", "gemma2", "Gemma2", {**GEMMA, **GEMMA2, "attn_logit_softcapping": 3.0}),
    Variant("gemma2-27b", "gemma2", "Gemma2", {**GEMMA_27B, **GEMMA2, "num_hidden_layers": 46}, format="F16"),
    Variant("gemma3", "gemma3", "Gemma3Text", {**GEMMA, "num_hidden_layers": 8, "rope_parameters": two_ropes(10000.0)}),
    Variant(
        "gemma3-linear", "gemma3", "Gemma3Text",
        {**GEMMA, "num_hidden_layers": 8, "rope_parameters": two_ropes(500.0, rope_type="linear", factor=8.0)},
        metadata={"rope.freq_base_swa": 500.0}, format="Q8_0",
    ),
    Variant(
        "gemma3-27b", "gemma3", "Gemma3Text",
        {**GEMMA_27B, "num_hidden_layers": 62, "rope_parameters": two_ropes(10000.0)}, format="F16",
    ),
    Variant(
        "gemma3-no-window", "gemma3", "Gemma3Text",
        {**GEMMA, "num_hidden_layers": 8, "rope_parameters": two_ropes(10000.0), "layer_types": ["full_attention"] * 8},
    ),
]  # fmt: skip

FULL, LOCAL = "full_attention", "sliding_attention"
GEMMA4 = {
    **{key: value for key, value in GEMMA.items() if key != "query_pre_attn_scalar"},
    "head_dim": 16,
    "global_head_dim": 32,
    "num_hidden_layers": 7,
    "layer_types": [LOCAL, FULL, LOCAL, FULL, LOCAL, LOCAL, FULL],
    "num_kv_shared_layers": 3,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": VOCABULARY,
    "final_logit_softcapping": 3.0,
    "rope_parameters": {
        FULL: rope("proportional", theta=1e4, partial_rotary_factor=0.25),
        LOCAL: rope(theta=500.0),
    },
}
GEMMA4S = [
    Variant("gemma4", "gemma4", "Gemma4Text", {**GEMMA4, "use_double_wide_mlp": True}),
    # The larger models have no embeddings for each layer, and keys as values in global layers.
    Variant(
        "gemma4-keys-as-values", "gemma4", "Gemma4Text",
        {
            **GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
        },
        format="Q8_0",
    ),
]  # fmt: skip

SMOLLM3 = Variant(
    "smollm3", "smollm3", "SmolLM3",
    {**SIZES, "num_hidden_layers": 8, "tie_word_embeddings": True, "rope_parameters": rope(theta=50000.0)},
)  # fmt: skip

OLMO2 = Variant("olmo2", "olmo2", "Olmo2", {**SIZES, "rope_parameters": rope(theta=5e5)})
GLM4 = Variant(
    "glm4", "glm4", "Glm4",
    {**SIZES, **WIDE_HEADS, "attention_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
)  # fmt: skip

GRANITE = {
    **SIZES,
    "embedding_multiplier": 4.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.5,
    "logits_scaling": 4.0,
    "rope_parameters": rope(),
}
GRANITES = [
    Variant("granite", "granite", "Granite", GRANITE, embedding_spread=0.25),
    # Converted dense files of Granite 4 have settings of the hybrid ones.
    Variant(
        "granite-4", "granite", "Granite",
        {**GRANITE, "attention_bias": True, "tie_word_embeddings": True},
        metadata={"ssm.state_size": 128, "rope.scaling.finetuned": True, "expert_count": 0},
        format="Q8_0", embedding_spread=0.25,
    ),
]  # fmt: skip

MOE = Variant(
    "granitemoe", "granitemoe", "GraniteMoe", {**GRANITE, "num_local_experts": 8, "num_experts_per_tok": 3},
    format="Q8_0", embedding_spread=0.25, seed=28,
)  # fmt: skip
"""The seed is one with which no router is undecided between two experts: rounding would choose another one."""

OLMOE = Variant(
    "olmoe", "olmoe", "Olmoe",
    {**SIZES, "num_experts": 8, "num_experts_per_tok": 3, "rope_parameters": rope()}, format="Q8_0", seed=47,
)  # fmt: skip
"""The seed is chosen as that of MOE."""

LFM2 = Variant(
    "lfm2", "lfm2", "Lfm2",
    {
        **{key: value for key, value in SIZES.items() if key != "rms_norm_eps"},
        "norm_eps": 0.1,
        "tie_word_embeddings": True,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": 3,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
        "rope_parameters": rope(theta=1e6),
    },
)  # fmt: skip
LFM2S = [LFM2, replace(LFM2.changed("lfm2-taps", conv_L_cache=4), format="Q8_0")]

QWEN35 = Variant(
    "qwen35", "qwen35", "Qwen3_5Text",
    {
        **SIZES,
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "rope_parameters": rope(partial_rotary_factor=0.25),
    },
    format="Q8_0", formats={"ssm_out": "F16"},
)  # fmt: skip
QWEN35S = [
    QWEN35,
    # With a block that guesses further tokens, and layers that are listed.
    replace(
        QWEN35.changed(
            "qwen35-nextn", num_hidden_layers=3, layer_types=["full_attention"] + ["linear_attention"] * 2,
            linear_num_value_heads=2, linear_conv_kernel_dim=3, tie_word_embeddings=True,
        ),
        metadata={"nextn_predict_layers": 1}, format="F32",
    ),
]  # fmt: skip

_WITH_STATES = [*LFM2S, *QWEN35S]
VARIANTS = {
    variant.name: variant
    for variant in [
        *LLAMAS,
        *QWENS,
        *DIFFUSIONS,
        *PHIS,
        *GEMMAS,
        *GEMMA4S,
        SMOLLM3,
        OLMO2,
        GLM4,
        *GRANITES,
        MOE,
        OLMOE,
        *_WITH_STATES,
    ]
}
"""The variants whose logits are in expected/."""

ROOM = {
    "vocab_size": ALL_BYTES,
    "max_position_embeddings": 512,
    "num_hidden_layers": 3,
    "tie_word_embeddings": True,
}


def _quantized(
    like: str, formats: Mapping[str, str] | None = None, biased: Collection[str] | None = None, **config: Any
) -> Variant:
    changed = VARIANTS[like].changed(**{**ROOM, **config})
    return replace(
        changed, name="tiny", format="Q8_0", formats=formats or {}, biased=biased, padding=0, embedding_spread=0.4
    )


QUANTIZED = {
    "llama with every bias": _quantized("llama-biases", {"attn_output": "Q4_1", "ffn_down": "F16"}),
    "llama with biases of q and v": _quantized(
        "llama", {"attn_k": "F16", "attn_v": "Q4_1", "ffn_gate": "Q4_0", "output": "F32"},
        biased=("attn_q", "attn_v", "ffn_up"), tie_word_embeddings=False,
    ),
    "llama in fused tensors": _quantized(
        "llama-fused-qkv", biased=("attn_q", "attn_k", "attn_v"), num_key_value_heads=1
    ),
    "qwen2": _quantized("qwen2"),
    "qwen3": _quantized("qwen3", head_dim=32),
    "phi3": _quantized("phi3-longrope", {"attn_qkv": "Q4_1"}),
    "gemma2": _quantized("gemma2", head_dim=24, sliding_window=150, final_logit_softcapping=4.0),
    "gemma3": _quantized("gemma3-linear", head_dim=16, num_key_value_heads=1, num_hidden_layers=7, sliding_window=40),
    "gemma4": _quantized(
        "gemma4", {"proj": "F16", "per_layer_token_embd": "Q4_1"}, num_hidden_layers=7, sliding_window=40,
        vocab_size_per_layer_input=ALL_BYTES,
    ),
    "smollm3": _quantized("smollm3", num_hidden_layers=5),
    "qwen3 of odd widths": replace(
        _quantized("qwen3", head_dim=50, hidden_size=76, intermediate_size=100), format="F16"
    ),
    "olmo2": _quantized("olmo2", {"attn_k": "Q4_1", "ffn_down": "F16"}, tie_word_embeddings=False),
    "glm4": _quantized("glm4", {"attn_k": "Q4_1", "ffn_up": "F16"}, head_dim=32),
    "granite": _quantized("granite", {"attn_k": "Q4_1", "ffn_up": "F16"}),
    "granitemoe": _quantized("granitemoe", {"ffn_gate_exps": "Q4_1", "ffn_down_exps": "F16"}),
    "olmoe": _quantized("olmoe", {"ffn_gate_exps": "Q4_1", "ffn_down_exps": "F16"}, tie_word_embeddings=False),
    "lfm2": _quantized("lfm2", {"in_proj": "Q4_1", "ffn_up": "F16"}, layer_types=["conv", "full_attention", "conv"]),
    "qwen35": _quantized(
        "qwen35", {"attn_qkv": "Q4_1", "attn_q": "F16", "ssm_alpha": "F32"},
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
}  # fmt: skip
"""For comparing a backend with numpy: mixed formats, every byte a token, room for longer texts and windows.

gemma3 has 7 layers, because its sixth is the first without a window, smollm3 5, because its fourth does not rotate.
Odd widths are not multiples of 32, and heads of 50 not multiples of 4. OpenLLaMA 3B has heads of 100.
"""

OUTSIDE_GATE = ("gemma4", "olmo2", "glm4", "granite", "granitemoe", "olmoe", "lfm2", "qwen35")
"""Names in QUANTIZED that have no operation of their own, or one with a test of its own: test_architectures.py has them
in the gate."""

CONVOLUTIONS = replace(
    LFM2.changed(
        "convolutions", vocab_size=ALL_BYTES, max_position_embeddings=512, norm_eps=1e-5, num_hidden_layers=3,
        layer_types=["conv", "full_attention", "conv"],
    ),
    embedding_spread=0.4,
)  # fmt: skip
"""For tests of pages: float32, every byte a token, two layers that convolve and one with attention."""

DELTA_RULES = replace(
    QWEN35.changed(
        "delta rules", vocab_size=ALL_BYTES, max_position_embeddings=512, rms_norm_eps=1e-5, num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"], tie_word_embeddings=True,
    ),
    format="F32", formats={}, embedding_spread=0.4,
)  # fmt: skip
"""The same with two delta rules, whose states only some pages have."""

HEADS_DIFFER = replace(
    VARIANTS["gemma4"].changed(
        "heads-differ", vocab_size=ALL_BYTES, vocab_size_per_layer_input=ALL_BYTES, max_position_embeddings=512,
        rms_norm_eps=1e-5, num_hidden_layers=4, layer_types=[LOCAL, FULL, LOCAL, FULL], num_kv_shared_layers=2,
    ),
    embedding_spread=0.4,
)  # fmt: skip
"""A Gemma 4 whose pages hold heads of 16 and of 32 values, and in which two layers read the pages of others."""
