"""llama.cpp's LoRA adapters: a GGUF file with two tensors for each model tensor that it changes.

"blk.0.attn_q.weight.lora_a" is (rank, in), "... .lora_b" (out, rank). Rows have the model file's order. The scale is
alpha / rank for every tensor, or 1 if alpha is 0 or missing.

Source: https://github.com/ggml-org/llama.cpp/blob/master/convert_lora_to_gguf.py
"""

from __future__ import annotations

import re

import numpy as np

from py_core.adapters.layout import AdapterLayout, check_shapes, finite
from py_core.adapters.lora import AdapterError, LoraPair
from py_core.display import shown
from py_core.formats.gguf import GGUFHeader, TensorInfo, parse_header
from py_core.formats.quantization import dequantize
from py_core.limits import MAX_ADAPTER_SCALE

_NAME = re.compile(r"(.{1,200})\.weight\.lora_([ab])")


def read_gguf_lora(data: bytes | memoryview, layout: AdapterLayout) -> tuple[dict[str, LoraPair], GGUFHeader]:
    """The pairs, by the model file's tensor names, and the adapter's header.

    Raises AdapterError, GGUFError and UnsupportedFormatError.
    """
    header = parse_header(data, len(data))
    alpha = _alpha(header, layout.architecture)
    halves: dict[str, dict[str, TensorInfo]] = {}
    for name, info in header.tensors.items():
        found = _NAME.fullmatch(name)
        if not found:
            raise AdapterError(
                "adapter.no-lora-tensor",
                "The adapter has the tensor {name}, which does not belong to LoRA; Sonata applies only plain "
                "LoRA. Choose another adapter.",
                name=shown(name),
            )
        if found[1] not in layout.places and found[1] not in layout.whole:
            raise AdapterError(
                "adapter.no-block-linear",
                "The adapter changes {name}, which is not a linear of this model's blocks. Choose the model that "
                "it was made for, or another adapter.",
                name=shown(found[1]),
            )
        halves.setdefault(found[1], {})[found[2]] = info
    pairs = {}
    for module, both in halves.items():
        if len(both) < 2:
            raise AdapterError(
                "adapter.one-matrix",
                "The adapter has only one of the two matrices for {name}: it is damaged. Download it again.",
                name=shown(module),
            )
        a, b = both["a"], both["b"]
        check_shapes(module, layout.place(module), a.shape, b.shape)
        scale = alpha / a.shape[0] if alpha else 1.0
        pairs[module] = LoraPair(_values(data, a), _values(data, b), scale)
    return layout.join(pairs), header


def _values(data: bytes | memoryview, info: TensorInfo) -> np.ndarray:
    encoded = memoryview(data)[info.offset : info.offset + info.nbytes]
    return finite(info.name, dequantize(encoded, info.format, info.shape))


def _alpha(header: GGUFHeader, architecture: str) -> float:
    """Raises AdapterError if the file is no LoRA for this architecture."""
    values = header.metadata
    kind = values.get("general.type")
    if not _says(kind, "adapter"):
        raise AdapterError(
            "adapter.gguf-no-adapter",
            "This GGUF file is not an adapter (its general.type is {kind}): choose another file.",
            kind=shown(kind),
        )
    if not _says(values.get("adapter.type"), "lora"):
        raise AdapterError(
            "adapter.gguf-type",
            "The adapter is of the type {type}; Sonata reads adapters of the type 'lora'.",
            type=shown(values.get("adapter.type")),
        )
    if not _says(values.get("general.architecture"), architecture):
        raise AdapterError(
            "adapter.other-architecture",
            "The adapter is for a model of {theirs}, but this is one of {ours}: choose the model that it was "
            "made for, or another adapter.",
            theirs=shown(values.get("general.architecture")),
            ours=architecture,
        )
    if "adapter.alora.invocation_tokens" in values:
        raise AdapterError(
            "adapter.activated",
            "The adapter is an activated LoRA, which begins at certain tokens, but Sonata applies only plain "
            "LoRA. Choose another adapter.",
        )
    alpha = values.get("adapter.lora.alpha", 0.0)
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ADAPTER_SCALE:
        raise AdapterError(
            "adapter.bad-alpha",
            "The adapter's adapter.lora.alpha is {alpha}, which no adapter has: it is damaged. Download it again.",
            alpha=shown(alpha),
        )
    return float(alpha)


def _says(value: object, text: str) -> bool:
    """Compare a header value with a text. A file may have an array in its place, which cannot be compared."""
    return isinstance(value, str) and value == text
