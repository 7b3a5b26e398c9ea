"""`sonata convert`: a folder with safetensors, config.json and tokenizer.json becomes a GGUF file.

Matrices keep their type, and are copied a tensor at a time; norms and biases become float32. The package `gguf` (the
extra `convert`) reads special tokens and chat templates.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.models.converting.folder import ConvertError, read_config, read_weights, understood
from app.models.converting.settings import architecture_of, diffusion_settings, rope_tensors, settings
from app.models.converting.vocabulary import swallows_space, vocabulary
from app.models.quantization import Progress, refuse_existing, write_model
from py_core.display import shown
from py_core.formats.gguf_writer import StoredTensor
from py_core.formats.quantization import FORMATS
from py_core.formats.safetensors import StoredArray
from py_core.models.transformers_names import PERMUTED, delta_order, file_module, neighbours_rotate

_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
_CONVOLUTIONS = (".shortconv.conv.weight", ".ssm_conv1d.weight")
_IGNORED = (".rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.", "model.visual.", "mtp.")
_OF_DELTA_RULES = {"A_log": "ssm_a", "dt_bias": "ssm_dt.bias"}


@dataclass(frozen=True)
class Made:
    """Facts about the written file."""

    architecture: str
    tensors: int
    nbytes: int


def convert_folder(folder: Path, out: Path, progress: Progress, block: int | None = None) -> Made:
    """Write `out` from the model in `folder`. block: as in diffusion_settings.

    Raises ConvertError and SafetensorsError if it cannot be converted, and the errors of write_model.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ConvertError("Converting needs the package gguf: install it with `pip install gguf`.")
    refuse_existing(out)
    config = read_config(folder)
    with understood(f"{folder / 'config.json'}"):
        architecture = architecture_of(config)
        keys = settings(config, architecture)
        factors = rope_tensors(config, architecture)
    weights = _named(read_weights(folder), config, architecture)
    if "token_embd.weight" not in weights:
        raise ConvertError(f"The safetensors files in {folder} have no embedding: download the folder again.")
    names = ["attention.head_count", "attention.head_count_kv"]
    names += ["ssm.group_count", "ssm.time_step_rank", "ssm.state_size"] if architecture == "qwen35" else []
    heads = [keys[f"{architecture}.{name}"] for name in names]
    total, done = sum(math.prod(one.shape) for one in weights.values()), 0

    def count(numbers: int) -> None:
        nonlocal done
        done += numbers
        progress(done, total)

    tensors = {
        name: StoredTensor(
            _shape(name, array),
            FORMATS[_format(name, array)],
            partial(_pieces, name, array, architecture, heads, count),
        )
        for name, array in weights.items()
    }
    for name, values in factors.items():
        tensors[name] = StoredTensor(values.shape, FORMATS["F32"], partial(_one, values.tobytes()))
    with understood(f"{folder / 'tokenizer.json'}"):
        keys |= vocabulary(folder, weights["token_embd.weight"].shape[0])
        swallows = architecture == "phi3" and swallows_space(folder)
    name = folder.resolve().name
    if swallows and not any(one in name.lower() for one in ("phi-3", "phi3")):
        name = f"Phi-3 {name}"  # readers recognize such special tokens by the model's name
    keys |= diffusion_settings(config, architecture, folder.resolve().name, block)
    general = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": name,
        "general.file_type": _FILE_TYPES[tensors["token_embd.weight"].format.name],
        "general.quantization_version": 2,
    }
    with understood(str(folder)):
        write_model(out, general | keys, tensors)
    return Made(architecture, len(tensors), out.stat().st_size)


def _named(stored: Mapping[str, StoredArray], config: Mapping[str, Any], architecture: str) -> dict[str, StoredArray]:
    """The tensors by their GGUF names, layer by layer."""
    gemma = architecture.startswith("gemma")
    tied = gemma or config.get("tie_embedding", config.get("tie_word_embeddings", architecture == "lfm2"))
    weights: dict[str, StoredArray] = {}
    for given, array in stored.items():
        if any(part in given for part in _IGNORED):
            continue
        given_module, _, kind = given.rpartition(".")
        if kind in _OF_DELTA_RULES:  # parameters of the rule itself, beside its modules
            norm = file_module(f"{given_module}.norm", architecture, config["num_hidden_layers"])
            weights[f"{(norm or '').removesuffix('ssm_norm')}{_OF_DELTA_RULES[kind]}"] = array
            continue
        module = file_module(given_module, architecture, config["num_hidden_layers"])
        if tied and (module, kind) == ("output", "weight"):
            continue
        if module is None or kind not in ("weight", "bias"):
            raise ConvertError(
                f"A model of {architecture} has no use for the tensor {shown(given)}: is config.json this model's?"
            )
        if array.dtype not in _FILE_TYPES:
            raise ConvertError(
                f"The tensor {shown(given)} has the type {array.dtype}; only F32, F16 and BF16 can be converted."
            )
        weights[f"{module}.{kind}"] = array
    return dict(sorted(weights.items(), key=lambda item: _place(item[0])))


def _place(name: str) -> tuple[int, int]:
    """The sort key of a tensor in the file: embedding, layers, the rest."""
    parts = name.split(".")
    if parts[0] == "blk":
        return 1, int(parts[1])
    return (0 if parts[0] == "token_embd" else 2), 0


def _shape(name: str, array: StoredArray) -> tuple[int, ...]:
    """A convolution is stored with one input for each channel, which a file leaves out."""
    return (array.shape[0], array.shape[-1]) if name.endswith(_CONVOLUTIONS) else array.shape


def _format(name: str, array: StoredArray) -> str:
    return "F32" if len(array.shape) < 2 or name.endswith(("_norm.weight", *_CONVOLUTIONS)) else array.dtype


def _one(data: bytes) -> list[bytes]:
    return [data]


def _pieces(
    name: str, array: StoredArray, architecture: str, heads: Sequence[int], count: Callable[[int], None]
) -> Iterator[bytes]:
    """A tensor's bytes as the file stores them. heads: of q and of k; for delta rules also of k, of v, and their
    size."""
    values = array.raw() if _format(name, array) == array.dtype else np.asarray(array.array(), np.float32)
    from_one = architecture.startswith("gemma") or (architecture == "qwen35" and "ssm_norm" not in name)
    if from_one and name.endswith("_norm.weight"):
        values = np.asarray(array.array(), np.float32) + np.float32(1)
    if architecture in PERMUTED and (part := name.split(".")[-2]) in ("attn_q", "attn_k"):
        values = neighbours_rotate(values, heads[part == "attn_k"])
    if architecture == "qwen35" and name.startswith("blk."):
        part = name.split(".")[2]
        if (order := delta_order(part, *heads[2:])) is not None:
            values = values[:, order] if part == "ssm_out" else values[order]
        values = -np.exp(values.astype(np.float64)).astype(np.float32) if part == "ssm_a" else values
    yield np.ascontiguousarray(values).tobytes()
    count(values.size)
