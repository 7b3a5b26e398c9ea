"""Maps tensor names of `transformers` to those of a GGUF file, and row orders if they differ.

Source: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/tensor_mapping.py
"""

from __future__ import annotations

import re

import numpy as np

PERMUTED = ("llama", "llada", "smollm3", "granite", "granitemoe")
"""In files of these architectures, rows of q and k that rotate together are neighbours, not half a head apart."""

_OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.embedding_norm": "token_embd_norm",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "lm_head": "output",
}
_EVERYWHERE = {
    "self_attn.o_proj": "attn_output",
    "mlp.down_proj": "ffn_down",
}
_FIRST_NORM = {"input_layernorm": "attn_norm"}
_ATTENTION = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_TWO_NORMS = _FIRST_NORM | {"post_attention_layernorm": "ffn_norm"}
_FOUR_NORMS = _FIRST_NORM | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LLAMA = _EVERYWHERE | _ATTENTION | _MLP | _TWO_NORMS
_GEMMA2 = _EVERYWHERE | _ATTENTION | _MLP | _FOUR_NORMS
_GEMMA4 = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_OLMO2 = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_QKV = {"self_attn.qkv_proj": "attn_qkv"}
_GATE_UP = {"mlp.gate_up_proj": "ffn_up"}
_GLM4 = {
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}
_LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
_QWEN35 = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_BLOCKS = {
    "lfm2": _ATTENTION | _LFM2,
    "llama": _LLAMA,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _EVERYWHERE | _ATTENTION | _TWO_NORMS,
    "a2d-qwen2": _LLAMA,
    "a2d-qwen3": _LLAMA | _HEAD_NORMS,
    "dream": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA | _HEAD_NORMS,
    "qwen35": _EVERYWHERE | _ATTENTION | _MLP | _FIRST_NORM | _QWEN35 | _HEAD_NORMS,
    "phi3": _EVERYWHERE | _QKV | _GATE_UP | _TWO_NORMS,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA2 | _HEAD_NORMS,
    "gemma4": _GEMMA2 | _HEAD_NORMS | _GEMMA4,
    "glm4": _EVERYWHERE | _ATTENTION | _GATE_UP | _TWO_NORMS | _GLM4,
    "olmoe": _EVERYWHERE | _ATTENTION | _TWO_NORMS | _HEAD_NORMS,
    "olmo2": _EVERYWHERE | _ATTENTION | _MLP | _HEAD_NORMS | _OLMO2,
}
"""By architecture: a block's modules in `transformers`, and their names in a file."""

_BACK = {architecture: {theirs: name for name, theirs in block.items()} for architecture, block in _BLOCKS.items()}
_OUTSIDE_BACK = {theirs: name for name, theirs in _OUTSIDE.items()}
_MODULE = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.([a-z_.]+[123]?d?)")
_FILE_MODULE = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_.]+1?d?)")
_OF_HEADS = ("attn_qkv", "attn_gate", "ssm_out", "ssm_conv1d")
_OF_HEAD_NUMBERS = ("ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt")


def file_module(module: str, architecture: str, layers: int) -> str | None:
    """Translate "model.layers.3.self_attn.q_proj" to "blk.3.attn_q"; None for a module that such a model does not have.

    `module` may be inside a model of text and images ("model.language_model.layers.3. ...").
    """
    plain = module.removeprefix("model.").removeprefix("language_model.").removeprefix("model.")
    plain = plain if plain == "lm_head" else f"model.{plain}"
    if plain in _OUTSIDE:
        return _OUTSIDE[plain]
    found = _MODULE.fullmatch(plain)
    if not found or int(found[1]) >= layers or found[2] not in _BLOCKS[architecture]:
        return None
    return f"blk.{found[1]}.{_BLOCKS[architecture][found[2]]}"


def transformers_module(module: str, architecture: str) -> str:
    """The inverse of `file_module`. Raises KeyError for a name that no such file has."""
    if module in _OUTSIDE_BACK:
        return _OUTSIDE_BACK[module]
    found = _FILE_MODULE.fullmatch(module)
    if not found:
        raise KeyError(module)
    return f"model.layers.{found[1]}.{_BACK[architecture][found[2]]}"


def neighbours_rotate(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows of q or k: in a head of D rows, row i and row i + D / 2 become rows 2 i and 2 i + 1."""
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def halves_rotate(rows: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `neighbours_rotate`."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def delta_order(part: str, keys: int, heads: int, size: int) -> np.ndarray | None:
    """The rows of a delta rule's tensor (the columns of "ssm_out") in the order of a file; None if it is the same.

    In `transformers` the heads of v that read one head of k lie together. A file has the first of each, then the
    seconds. `keys` and `heads` are the numbers of heads of k and of v, `size` their values.
    """
    if heads == keys or part not in (*_OF_HEADS, *_OF_HEAD_NUMBERS):
        return None
    width = size if part in _OF_HEADS else 1
    first = 2 * keys * size if part in ("attn_qkv", "ssm_conv1d") else 0
    order = np.arange(heads * width).reshape(keys, heads // keys, width).swapaxes(0, 1).reshape(-1)
    return np.concatenate([np.arange(first), first + order])
