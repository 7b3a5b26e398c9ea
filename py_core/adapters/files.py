"""Adapter files: reads Sonata's own, PEFT's and llama.cpp's; writes Sonata's own and PEFT's.

Sonata's own is one safetensors file with PEFT's tensors (peft.py) and these entries in its header:

sonata_adapter   the version of this layout, "1"
architecture     of the model, in GGUF's words
base_sha256      of the model file
name             of the adapter
adapter_config   what PEFT keeps in adapter_config.json
metadata         the other texts of the adapter, a JSON object
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_core.adapters.gguf_lora import read_gguf_lora
from py_core.adapters.layout import AdapterLayout
from py_core.adapters.lora import AdapterError, LoraAdapter
from py_core.adapters.peft import CONFIG_FILE, WEIGHTS_FILE, read_config, read_pairs, write_pairs
from py_core.display import one_line, shown
from py_core.formats.gguf_types import MAGIC, GGUFError
from py_core.formats.quantization import UnsupportedFormatError
from py_core.formats.safetensors import SafetensorsError, StoredArray, stored_arrays, write_safetensors
from py_core.limits import MAX_ADAPTER_BYTES
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

_VERSION = "1"
_MARK = "sonata_adapter"


@dataclass(frozen=True)
class AdapterDetails:
    """The details in one of Sonata's own files. `rank` is the largest of its matrices, `linears` the number of linears
    it changes, counted as in `transformers`."""

    name: str
    architecture: str
    base_sha256: str
    rank: int
    linears: int
    metadata: Mapping[str, str]


def read_adapter(
    data: bytes | memoryview, config: ModelConfig, graph: Graph, *, peft_config: bytes | None = None, name: str = ""
) -> LoraAdapter:
    """An adapter for the model of `config` and `graph`, from the bytes of a file of any of the three kinds.

    peft_config: the bytes of adapter_config.json; `data` is then adapter_model.safetensors beside it
    name: the adapter's name if the file has none

    `base_sha256` is "" if the file does not contain it, like PEFT's and llama.cpp's; `lora.check_base` compares it. The
    ranks may be larger than a backend can use: `lora.check_adapter` reports that, and `merging.compress` makes them
    smaller. Raises AdapterError for a file that is damaged, of another kind or for another model.
    """
    if len(data) > MAX_ADAPTER_BYTES:
        raise AdapterError(
            "adapter.long-file",
            "The file has {length} bytes, and no adapter has more than {most}: choose another file.",
            length=len(data),
            most=MAX_ADAPTER_BYTES,
        )
    layout = AdapterLayout(config, graph)
    try:
        if bytes(data[:4]) == MAGIC:
            pairs, header = read_gguf_lora(data, layout)
            found = header.metadata.get("general.name")
            own_name = one_line(found) if isinstance(found, str) else ""
            return LoraAdapter(own_name or one_line(name), pairs)
        if _is_of_pytorch(data):
            raise AdapterError(
                "adapter.pytorch",
                "The adapter is in PyTorch's format, which may hold programs, so it is not "
                "opened: save it with safe_serialization=True.",
            )
        stored, texts = stored_arrays(data)
    except (GGUFError, SafetensorsError, UnsupportedFormatError) as error:
        raise AdapterError(error.message) from error
    if _MARK in texts:
        details = _details(stored, texts)
        if details.architecture != config.architecture:
            raise AdapterError(
                "adapter.other-architecture-named",
                "The adapter {name} is for a model of {theirs}, but this is one of {ours}: choose the model that "
                "it was made for, or another adapter.",
                name=shown(details.name),
                theirs=shown(details.architecture),
                ours=config.architecture,
            )
        pairs = read_pairs(stored, read_config(texts.get("adapter_config", "").encode()), layout)
        return LoraAdapter(details.name, pairs, details.base_sha256, details.metadata)
    if peft_config is None:
        raise AdapterError(
            "adapter.not-ours-peft",
            "Sonata did not write this file. If it is {weights} from PEFT, give the folder that also has {config}.",
            weights=WEIGHTS_FILE,
            config=CONFIG_FILE,
        )
    return LoraAdapter(one_line(name), read_pairs(stored, read_config(peft_config), layout))


def _is_of_pytorch(data: bytes | memoryview) -> bool:
    """True if the file comes from torch.save: a zip with a pickle, or before PyTorch 1.6 a pickle."""
    begin = bytes(data[:256])
    return begin.startswith((b"\x80\x02", b"PK\x03\x04")) and (begin[0] == 0x80 or b"data.pkl" in begin)


def read_details(data: bytes | memoryview) -> AdapterDetails:
    """The details in one of Sonata's own files, read without the model. Raises AdapterError for any other file."""
    try:
        stored, texts = stored_arrays(data)
    except SafetensorsError as error:
        raise AdapterError(error.message) from error
    if _MARK not in texts:
        raise AdapterError("adapter.not-ours", "Sonata did not write this adapter: import it first.")
    return _details(stored, texts)


def write_adapter(adapter: LoraAdapter, config: ModelConfig, graph: Graph, *, half: bool = False) -> bytes:
    """One of Sonata's own files. The same adapter gives the same bytes; `read_adapter` is the inverse.

    config, graph: of the model that it was made for. half: store numbers rounded to float16, in half the bytes. Raises
    AdapterError if the model does not have its tensors, or a number is too large for float16.
    """
    arrays, peft_config = write_pairs(adapter.pairs, AdapterLayout(config, graph))
    if half:
        arrays = {name: _halved(name, array) for name, array in arrays.items()}
    texts = {
        "format": "pt",
        _MARK: _VERSION,
        "architecture": config.architecture,
        "base_sha256": adapter.base_sha256,
        "name": adapter.name,
        "adapter_config": _json(peft_config),
        "metadata": _json(dict(adapter.metadata)),
    }
    return write_safetensors(arrays, texts)


def export_peft(adapter: LoraAdapter, config: ModelConfig, graph: Graph, base_model: str = "") -> dict[str, bytes]:
    """The two files of a folder for `peft.PeftModel.from_pretrained`, by name.

    base_model: the name or folder of the same model in `transformers`, for adapter_config.json. For Gemma 3 it is the
    text-only one. Raises AdapterError as write_adapter does.
    """
    arrays, peft_config = write_pairs(adapter.pairs, AdapterLayout(config, graph), base_model)
    return {
        CONFIG_FILE: (json.dumps(peft_config, indent=2) + "\n").encode(),
        WEIGHTS_FILE: write_safetensors(arrays, {"format": "pt"}),
    }


def _details(stored: Mapping[str, StoredArray], texts: Mapping[str, str]) -> AdapterDetails:
    if texts[_MARK] != _VERSION:
        raise AdapterError(
            "adapter.other-layout",
            "The adapter has layout {theirs}, but this Sonata reads layout {ours}. Update Sonata, or write "
            "the adapter again.",
            theirs=shown(texts[_MARK]),
            ours=_VERSION,
        )
    try:
        metadata = json.loads(texts.get("metadata", "{}"))
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise AdapterError(
            "adapter.damaged-metadata", "The adapter's metadata are not text: it is damaged. Download it again."
        )
    ranks = [one.shape[0] for name, one in stored.items() if name.endswith(".lora_A.weight") and one.shape]
    return AdapterDetails(
        one_line(texts.get("name", "")), one_line(texts.get("architecture", "")),
        one_line(texts.get("base_sha256", "")), max(ranks, default=0), len(ranks), metadata,
    )  # fmt: skip


def _halved(name: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        halved = values.astype(np.float16)
    if not np.isfinite(halved).all():
        raise AdapterError(
            "adapter.large-numbers",
            "The adapter's tensor {name} has numbers over 65,504: write it in float32.",
            name=shown(name),
        )
    return halved


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
