"""Chooses the format of each tensor of a model: llama.cpp's choice for its mixtures, and Sonata's `mixed`.

In Q4_K_M and Q5_K_M, the values' and the MLP's last matrices lose most in quantization. They get Q6_K in the first and
last eighth of the layers and in every third between. The output matrix, or the embedding in its role, gets Q6_K. Norms,
biases and everything else that is no matrix stay unchanged. If rows are not a multiple of a format's block, a format
with blocks of 32 is used instead, or F16.

Source: llama_tensor_get_type_impl and tensor_type_fallback in llama.cpp's llama-quant.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import FORMATS, BlockFormat

BASES = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K", "Q8_0": "Q8_0", "mixed": "Q4_K"}
"""The mixtures, with the format of most tensors."""

FILE_TYPES = {"Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17, "mixed": 15}
"""The general.file_type of each mixture: llama.cpp's number for the format that most weights have."""

_FALLBACKS = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
_SHARED_VALUES_LAYERS = 80
"""llama.cpp assumes that a model with this many layers is a 70B one, whose few value matrices get a bit more."""


def choose_formats(tensors: Mapping[str, TensorInfo], mixture: str) -> dict[str, BlockFormat]:
    """The format of each tensor in a mixture of BASES, by name."""
    values = _by_layer(tensors, r"attn_(v|qkv)\.weight")
    downs = _by_layer(tensors, r"ffn_down(?:_exps)?\.weight")
    return {
        name: fitting(FORMATS[_wanted(name, mixture, tensors, values, downs)], info.shape[-1])
        if is_quantized(info)
        else info.format
        for name, info in tensors.items()
    }


def is_quantized(info: TensorInfo) -> bool:
    """True if quantization applies to the tensor: it is a matrix, no norm, no convolution's and no router's."""
    rows, floats = (
        info.shape[:-1],
        ("_norm.weight", "shortconv.conv.weight", "ssm_conv1d.weight", "ffn_gate_inp.weight"),
    )
    return max(rows, default=1) > 1 and info.name.endswith("weight") and not any(one in info.name for one in floats)


def fitting(form: BlockFormat, columns: int) -> BlockFormat:
    """The format, or its replacement if rows are not a multiple of its blocks."""
    if columns % form.block_size == 0:
        return form
    other = FORMATS[_FALLBACKS.get(form.name, form.name)]
    return FORMATS["F16"] if columns % other.block_size else other


def _wanted(
    name: str, mixture: str, tensors: Mapping[str, TensorInfo], values: Mapping[str, int], downs: Mapping[str, int]
) -> str:
    base = BASES[mixture]
    if name == "output.weight" or (name == "token_embd.weight" and "output.weight" not in tensors):
        return "Q8_0" if tensors[name].shape[-1] % FORMATS[base].block_size or base == "Q8_0" else "Q6_K"
    if mixture == "mixed":
        return "F16" if ".attn_" in name else base
    if base == "Q8_0":
        return base
    if name in values:
        if _gets_more_bits(values[name], len(values)):
            return "Q6_K"
        return "Q5_K" if len(values) == _SHARED_VALUES_LAYERS and base == "Q4_K" else base
    if name in downs and _gets_more_bits(downs[name], len(downs)):
        return "Q6_K"
    return base


def _gets_more_bits(layer: int, layers: int) -> bool:
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _by_layer(tensors: Mapping[str, TensorInfo], pattern: str) -> dict[str, int]:
    """Names of the matrices blk.N.<pattern>, with their index among them."""
    found = [(int(match[1]), name) for name in tensors if (match := re.fullmatch(rf"blk\.(\d+)\.{pattern}", name))]
    return {name: place for place, (_, name) in enumerate(sorted(found))}
