"""A model's settings as GGUF keys, from config.json. As llama.cpp's convert_hf_to_gguf.py writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.models.converting.folder import ConvertError
from py_core.display import one_line, shown
from py_core.limits import MAX_COUNTS, MAX_ROPE_BASE
from py_core.models.diffusion import ARCHITECTURES as DIFFUSION
from py_core.models.smollm3 import UNROTATED_EVERY
from py_core.models.transformers_names import PERMUTED

ARCHITECTURES = {
    "A2DQwen2LMHeadModel": "a2d-qwen2",
    "A2DQwen3LMHeadModel": "a2d-qwen3",
    "DreamModel": "dream",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Phi3ForCausalLM": "phi3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "SmolLM3ForCausalLM": "smollm3",
    "Olmo2ForCausalLM": "olmo2",
    "GraniteForCausalLM": "granite",
    "Lfm2ForCausalLM": "lfm2",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
}
"""GGUF's names of the architectures that can be converted."""

_BLOCK = 32
"""The places that dLLM's models of the kind BD3-LM write at a time."""

Config = Mapping[str, Any]


def architecture_of(config: Config) -> str:
    """Raises ConvertError with the names of the supported architectures."""
    name = (config.get("architectures") or ["none"])[0]
    if not isinstance(name, str) or name not in ARCHITECTURES:
        *others, last = dict.fromkeys(ARCHITECTURES.values())
        said = one_line(name) if isinstance(name, str) else shown(name)
        raise ConvertError(
            f"A model of the architecture {said} cannot be converted; models of {', '.join(others)} and {last} can."
        )
    return ARCHITECTURES[name]


def head_size(config: Config) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_settings(config: Config) -> dict[str, Any]:
    """How positions are encoded: rope_type, rope_theta, factor ...; "sliding" if layers with a window differ.

    Newer files have `rope_parameters`, older ones `rope_scaling` and keys beside it.
    """
    given: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = dict(given.get("full_attention") or given)
    local = (given.get("sliding_attention") or {}).get("rope_theta", config.get("rope_local_base_freq"))
    rope.setdefault("rope_type", rope.get("type", "default"))
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        if config.get(key) is not None:
            rope.setdefault(key, config[key])
    return rope | ({"sliding": local} if local is not None else {})


def settings(config: Config, architecture: str) -> dict[str, Any]:
    """The keys of the architecture. Raises ConvertError if config.json lacks a required key."""
    try:
        if architecture == "phi3":
            values = _phi3(config)
        elif architecture == "gemma2":
            values = _gemma2(config)
        else:
            values = _common(config, architecture)
    except KeyError as missing:
        raise ConvertError(f"config.json has no {missing.args[0]!r}, which a model of {architecture} needs.") from None
    found = {key: value for key, value in values.items() if value is not None}
    for key in ("block_count", "embedding_length", "feed_forward_length", "attention.head_count"):
        if key not in found:
            raise ConvertError(f"config.json does not say {key}: download it again.")
    for key, value in found.items():
        if isinstance(value, np.ndarray) and value.dtype == bool:
            continue
        of_layers = isinstance(value, np.ndarray)
        least = 0 if of_layers or key == "attention.sliding_window" else 1
        counts = value.tolist() if isinstance(value, np.ndarray) else [value]
        count = key in MAX_COUNTS and all(type(one) is int and least <= one <= MAX_COUNTS[key] for one in counts)
        other = key not in MAX_COUNTS and (isinstance(value, str) or 0 <= value <= MAX_ROPE_BASE)
        if not (count or other):
            raise ConvertError(f"config.json says {key} = {shown(value)}, which no model has: download it again.")
    return {f"{architecture}.{key}": value for key, value in found.items()}


def diffusion_settings(config: Config, architecture: str, name: str, block: int | None) -> dict[str, Any]:
    """How a model of diffusion writes; nothing for others. name: of the folder, which alone says it for dLLM's models.
    block: instead of what the folder says."""
    if architecture not in DIFFUSION:
        return {}
    usual = config.get("block_size") or (_BLOCK if "bd3lm" in name.lower() else 0)
    mask = config.get("mask_token_id")
    return {
        "diffusion.block_size": usual if block is None else block,
        "diffusion.shift_logits": architecture == "dream",
        **({} if mask is None else {"tokenizer.ggml.mask_token_id": mask}),
    }


def _sizes(config: Config) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    return {
        "block_count": config["num_hidden_layers"],
        "context_length": config.get("max_position_embeddings"),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6)),
    }


def _common(config: Config, architecture: str) -> dict[str, Any]:
    rope, head = rope_settings(config), config.get("head_dim")
    values = _sizes(config) | {"attention.key_length": head, "attention.value_length": head} | _scaling(rope)
    if (theta := rope.get("rope_theta")) is not None:
        values["rope.freq_base"] = float(theta)
    if architecture in PERMUTED:
        values |= {"vocab_size": config["vocab_size"], "rope.dimension_count": head_size(config)}
    if architecture in DIFFUSION:
        values["attention.causal"] = False
    if architecture == "smollm3":
        _check_unrotated(config)
    if architecture == "granite":
        values |= _granite(config)
    if architecture == "gemma3":
        values |= _gemma3(config, rope)
    if architecture == "lfm2":
        values |= _lfm2(config)
    if architecture == "qwen35":
        values |= _qwen35(config, rope)
    return values


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any]:
    kind, factor = rope["rope_type"], rope.get("factor")
    if kind in ("default", "llama3", "mrope"):  # llama3's is a tensor
        return {}
    if kind == "linear" and factor:
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(factor)}
    if kind != "yarn" or not factor:
        raise ConvertError(
            f"RoPE of the kind {shown(kind)} cannot be converted; linear, llama3, longrope and yarn can."
        )
    values = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(factor),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
    }
    yarn = {
        "yarn_ext_factor": rope.get("extrapolation_factor"),
        "yarn_attn_factor": rope.get("attention_factor", rope.get("attn_factor")),
        "yarn_beta_fast": rope.get("beta_fast"),
        "yarn_beta_slow": rope.get("beta_slow"),
    }
    return values | {f"rope.scaling.{key}": float(value) for key, value in yarn.items() if value is not None}


def _gemma2(config: Config) -> dict[str, Any]:
    head = config["head_dim"]
    return _sizes(config) | {
        "attention.key_length": head,
        "attention.value_length": head,
        "attn_logit_softcapping": config["attn_logit_softcapping"],
        "final_logit_softcapping": config["final_logit_softcapping"],
        "attention.sliding_window": config["sliding_window"],
    }


def _gemma3(config: Config, rope: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("attn_logit_softcapping") is not None:
        raise ConvertError("This gemma3 model caps its attention, which no file can say: it cannot be converted.")
    windowed = config.get("sliding_window_pattern") != 1
    return {
        "rope.freq_base_swa": float(rope["sliding"]) if "sliding" in rope else None,
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "attention.sliding_window": config["sliding_window"] if windowed else None,
    }


def _check_unrotated(config: Config) -> None:
    """A file does not say which layers rotate: readers leave out every fourth."""
    count, every = config["num_hidden_layers"], config.get("no_rope_layer_interval") or UNROTATED_EVERY
    rotated = config.get("no_rope_layers") or [(layer + 1) % every for layer in range(count)]
    usual = [(layer + 1) % UNROTATED_EVERY != 0 for layer in range(count)]
    if not isinstance(rotated, list) or [bool(one) for one in rotated] != usual:
        raise ConvertError(
            "In this smollm3 model other layers than every fourth have no rotation, which no file can say: it cannot "
            "be converted."
        )


def _granite(config: Config) -> dict[str, Any]:
    names = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
    return {key: float(config[name]) for key, name in names.items() if config.get(name) is not None}


def _lfm2(config: Config) -> dict[str, Any]:
    if config.get("conv_bias"):
        raise ConvertError("This lfm2 model has biases in its convolutions, which no file can say.")
    layers, attends = range(config["num_hidden_layers"]), config.get("full_attn_idxs")
    usual = ["conv" if attends is not None and layer not in attends else "full_attention" for layer in layers]
    heads = [0 if kind == "conv" else config["num_key_value_heads"] for kind in config.get("layer_types") or usual]
    width = config.get("block_ff_dim") or config["intermediate_size"]
    if config.get("block_auto_adjust_ff_dim", True):
        width = int((config.get("block_ffn_dim_multiplier") or 1.0) * int(2 * width / 3))
        width = -(-width // config.get("block_multiple_of", 256)) * config.get("block_multiple_of", 256)
    return {
        "attention.head_count_kv": np.array(heads, np.int32),
        "attention.layer_norm_rms_epsilon": float(config["norm_eps"]),
        "feed_forward_length": width,
        "shortconv.l_cache": config["conv_L_cache"],
        "vocab_size": config["vocab_size"],
    }


def _qwen35(config: Config, rope: Mapping[str, Any]) -> dict[str, Any]:
    layers, every = range(config["num_hidden_layers"]), config.get("full_attention_interval") or 4
    usual = ["linear_attention" if (layer + 1) % every else "full_attention" for layer in layers]
    recurrent = [kind == "linear_attention" for kind in config.get("layer_types") or usual]
    sections = [*(rope.get("mrope_section") or (11, 11, 10)), 0]
    if config["linear_key_head_dim"] != config["linear_value_head_dim"]:
        raise ConvertError("The heads of k and v of this qwen35 model differ in size, which no file can say.")
    return {
        "rope.dimension_sections": np.array(sections[:4], np.int32),
        "rope.dimension_count": int(head_size(config) * rope.get("partial_rotary_factor", 0.25)),
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
        "attention.recurrent_layers": np.array(recurrent),
        "full_attention_interval": 4,  # the list says more
    }


def _phi3(config: Config) -> dict[str, Any]:
    rope = rope_settings(config)
    values = _sizes(config) | {
        "rope.dimension_count": _rotated(config, rope),
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.scaling.original_context_length": _original_context(config, rope),
        # 0 distinguishes phi-4 from the others.
        "attention.sliding_window": config.get("sliding_window") or 0,
    }
    if rope.get("long_factor"):
        scale = config["max_position_embeddings"] / _original_context(config, rope)
        longer = math.log(scale) / math.log(_original_context(config, rope)) if scale > 1 else 0.0
        values["rope.scaling.attn_factor"] = math.sqrt(1 + longer)
    return values


def _rotated(config: Config, rope: Mapping[str, Any]) -> int:
    return int(rope.get("partial_rotary_factor", 1.0) * config["hidden_size"]) // config["num_attention_heads"]


def _original_context(config: Config, rope: Mapping[str, Any]) -> int:
    return rope.get("original_max_position_embeddings") or config["max_position_embeddings"]


def rope_tensors(config: Config, architecture: str) -> dict[str, np.ndarray]:
    """The tensors that scale positions: Llama 3's divisors of frequencies, Phi's two lists of factors."""
    rope = rope_settings(config)
    if architecture == "phi3":
        factors = {name: rope.get(f"{name}_factor") for name in ("long", "short")}
        if not any(factors.values()):
            return {}
        if any(len(one or ()) != _rotated(config, rope) // 2 for one in factors.values()):
            raise ConvertError("config.json has long or short rope factors of the wrong number: download it again.")
        return {f"rope_factors_{name}.weight": np.array(one, np.float32) for name, one in factors.items()}
    if rope["rope_type"] != "llama3":
        return {}
    return {"rope_freqs.weight": _llama3_divisors(rope, head_size(config))}


def _llama3_divisors(rope: Mapping[str, Any], head: int) -> np.ndarray:
    """The divisor of each frequency: 1 for short waves, `factor` for long ones, between them a mixture."""
    factor = rope.get("factor", 8.0)
    low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
    context = rope.get("original_max_position_embeddings", 8192)
    exponents = np.arange(0, head, 2, dtype=np.float32) / np.float32(head)
    frequencies = 1 / np.float32(rope.get("rope_theta", 10000.0)) ** exponents
    wavelengths = np.float32(2 * math.pi) / frequencies
    smooth = np.clip((np.float32(context) / wavelengths - np.float32(low)) / np.float32(high - low), 0, 1)
    return (1 / ((1 - smooth) / np.float32(factor) + smooth)).astype(np.float32)
