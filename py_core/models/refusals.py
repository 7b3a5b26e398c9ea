"""Settings that change a model's computation and that Sonata does not support: it refuses such a file by naming them.

Without this list a file of a known architecture would open and answer wrongly, for example if it is a mixture of
experts, or attends to later tokens. Settings that do not affect the arithmetic, and those not in this list, are
ignored: real files have many. Names are GGUF's, without the architecture's prefix.

`attention.sliding_window` is refused for olmo2, olmoe and lfm2: there it means OLMo 3, in which most layers have a
window, or a variant of OLMoE or LFM2 that was never published. Like llama.cpp, Sonata uses it in Gemma and ignores it
in others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from py_core.display import shown
from py_core.formats.gguf import GGUFError
from py_core.limits import MAX_LAYERS
from py_core.models.diffusion import ARCHITECTURES as OF_DIFFUSION

_OFF = (0,)
_NEUTRAL = (0, 1)
"""Factors that change nothing: like in llama.cpp, 0 means that the factor was never set."""

_HARMLESS: dict[str, tuple[float, ...]] = {
    # mixtures of experts, and blocks that are not one attention and one MLP
    **dict.fromkeys(("expert_count", "expert_used_count", "expert_shared_count", "expert_group_count"), _OFF),
    **dict.fromkeys(("nextn_predict_layers", "leading_dense_block_count", "decoder_block_count"), _OFF),
    **dict.fromkeys(("embedding_length_per_layer_input", "altup.num_inputs", "activation_sparsity_scale"), _OFF),
    **dict.fromkeys(("use_parallel_residual", "swin_norm", "hyper_connection.count", "swiglu_clamp_exp"), _OFF),
    **dict.fromkeys(("ssm.state_size", "wkv.head_size", "full_attention_interval"), _OFF),
    "expert_gating_func": (0, 1),  # 1 is a softmax
    "expert_weights_scale": _NEUTRAL,
    "num_loops": _NEUTRAL,
    # attention
    "attention.causal": (1,),
    **dict.fromkeys(("attention.max_alibi_bias", "attention.clamp_kqv", "attention.shared_kv_layers"), _OFF),
    **dict.fromkeys(("attention.q_lora_rank", "attention.kv_lora_rank", "attention.indexer.top_k"), _OFF),
    **dict.fromkeys(("attention.key_length_mla", "attention.value_length_mla"), _OFF),
    **dict.fromkeys(("attention.temperature_length", "attention.temperature_scale"), _OFF),
    **dict.fromkeys(("attention.value_scale", "attention.output_scale"), _NEUTRAL),
    # scales
    **dict.fromkeys(("logit_scale", "residual_scale", "embedding_scale"), _NEUTRAL),
    "router_logit_softcapping": _OFF,
    # rotation
    **dict.fromkeys(("rope.scaling.alpha", "rope.scaling.yarn_log_multiplier"), _OFF),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_attn_factor": _NEUTRAL,
    "rope.dimension_sections": _OFF,
}
"""The values of each setting that change nothing. For a list, the allowed values of its items."""

_OF_GRANITE = ("logit_scale", "residual_scale", "embedding_scale", "attention.scale", "ssm.state_size")
"""Settings that Granite's files may have: its multipliers, and what converted dense files say of layers they lack."""

_OF_QWEN35 = ("ssm.state_size", "full_attention_interval", "nextn_predict_layers", "rope.dimension_sections")
"""Settings of Qwen 3.5. All sections of its rotation turn by the token's position, if it reads no pictures."""

_OF_MIXTURES = ("expert_count", "expert_used_count")
MIXTURES = ("granitemoe", "olmoe")
"""The architectures whose layers are mixtures of experts."""

_OF_GEMMA4 = ("embedding_length_per_layer_input", "attention.shared_kv_layers")

_SOFT_CAPS = {"attn_logit_softcapping": ("gemma2",), "final_logit_softcapping": ("gemma2", "gemma3", "gemma4")}
"""The architectures that have soft-caps."""

_WINDOW_EVERY = {"gemma2": 2, "gemma3": 6}
"""One layer in each of these groups has no window."""

_ACTIVATIONS = {"silu": ("silu", "swish"), "gelu": ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_tanh")}


def unsupported(key: str, value: object) -> GGUFError:
    """The error for a file that has this setting."""
    return GGUFError(
        "model.unknown-setting",
        "The model file says {key} = {value}, which Sonata does not support. Its answers would be wrong "
        "without it, so it is not opened. Choose another model.",
        key=key,
        value=shown(value),
    )


def check_settings(metadata: Mapping[str, Any], architecture: str, head_dim: int, rotated: int, layers: int) -> None:
    """Raises GGUFError, with the setting's name, if a file asks for something that Sonata does not support.

    head_dim, rotated: values of a head, and how many of them rotate. layers: of the model.
    """

    granite, gemma4 = architecture in ("granite", "granitemoe"), architecture == "gemma4"
    sees_ahead = architecture in OF_DIFFUSION

    def check(key: str, *harmless: Any) -> None:
        value = metadata.get(f"{architecture}.{key}")
        if architecture == "qwen35" and key in _OF_QWEN35:
            return
        followed = granite and key in _OF_GRANITE, architecture in MIXTURES and key in _OF_MIXTURES
        if any(followed) or (gemma4 and key in _OF_GEMMA4) or (key == "attention.causal" and sees_ahead):
            return
        if value is not None and not _all_in(value, harmless):
            raise unsupported(f"{architecture}.{key}", value)

    for key, harmless in _HARMLESS.items():
        check(key, *harmless)
    for key, architectures in _SOFT_CAPS.items():
        if architecture not in architectures:
            check(key, 0)
    check("attention.value_length", head_dim)
    if gemma4:
        check("attention.value_length_swa", metadata.get("gemma4.attention.key_length_swa"))
        check("attention.scale", 0, 1)
    else:
        for key in ("attention.key_length_swa", "attention.value_length_swa"):
            check(key, head_dim)
        check("attention.scale", 0, head_dim**-0.5)
        check("rope.dimension_count_swa", rotated)
    if granite:  # llama.cpp takes this as whether anything rotates
        check("rope.scaling.finetuned", 1)
    if architecture in MIXTURES:
        check("expert_weights_norm", architecture == "granitemoe")
    if architecture in ("olmo2", "olmoe", "lfm2"):
        check("attention.sliding_window", 0)
    if architecture not in ("gemma3", "gemma4"):
        check("rope.freq_base_swa", metadata.get(f"{architecture}.rope.freq_base", 10000.0))
    activation = "gelu" if architecture in _WINDOW_EVERY or gemma4 else "silu"
    check("hidden_activation", *_ACTIVATIONS[activation])
    if every := _WINDOW_EVERY.get(architecture):
        has_window = [(layer + 1) % every != 0 for layer in range(layers)]
        pattern = metadata.get(f"{architecture}.attention.sliding_window_pattern")
        if not (isinstance(pattern, np.ndarray) and np.array_equal(pattern, has_window)):
            check("attention.sliding_window_pattern", every)


def _all_in(value: Any, harmless: tuple[Any, ...]) -> bool:
    """True if the value, or each item of a list, is one of these. Numbers are compared in GGUF's 32-bit precision."""
    if isinstance(value, str):
        return value in harmless
    if isinstance(value, list) or np.size(value) > MAX_LAYERS:
        return False
    numbers = [np.float32(one) for one in harmless if not isinstance(one, str)]
    try:
        return bool(np.isin(np.asarray(value, np.float32), numbers).all())
    except OverflowError:
        return False
