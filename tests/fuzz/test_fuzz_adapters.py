"""Any bytes given as an adapter's files are read, or refused with a sentence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from py_core.adapters.files import export_peft, read_adapter, read_details, write_adapter
from py_core.adapters.lora import AdapterError
from py_core.formats.gguf import write_gguf
from py_core.formats.quantization import FORMATS
from py_core.formats.safetensors import read_safetensors, write_safetensors
from tests.adapters.adapter_models import described, drawn
from tests.fuzz.harness import found_before, fuzzed, hostile, read_or_refused, texts

CONFIG, GRAPH = described("llama")
SMALL = drawn(GRAPH, 1, rank=1, only="blk.0.attn")
OWN = write_adapter(SMALL, CONFIG, GRAPH)
PEFT = export_peft(SMALL, CONFIG, GRAPH)
WEIGHTS, SETTINGS = PEFT["adapter_model.safetensors"], json.loads(PEFT["adapter_config.json"])
NAMES = list(read_safetensors(WEIGHTS)[0])


def gguf_file(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lora.gguf"
        write_gguf(path, metadata, {name: (array, FORMATS["F32"]) for name, array in arrays.items()})
        return path.read_bytes()


KEYS = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora", "adapter.lora.alpha": 2.0}
GGUF = gguf_file(
    KEYS, {f"{name}.lora_{half}": getattr(SMALL.pairs[name], half) for name in SMALL.pairs for half in "ab"}
)
changes = st.dictionaries(st.integers(0, 4000), st.integers(0, 255), min_size=1, max_size=6)


def read(data: bytes, settings: bytes | None = None) -> None:
    with read_or_refused(AdapterError):
        for pair in read_adapter(data, CONFIG, GRAPH, peft_config=settings).pairs.values():
            assert all(np.isfinite(one).all() for one in (pair.a, pair.b, pair.scale))


def damaged(data: bytes, at: dict[int, int]) -> bytes:
    changed = bytearray(data)
    for place, byte in at.items():
        changed[place % len(data)] = byte
    return bytes(changed)


@found_before("adapters")
def test_what_was_found_before_is_refused(path: Path) -> None:
    with pytest.raises(AdapterError):
        read_adapter(path.read_bytes(), CONFIG, GRAPH)


@fuzzed(st.binary(max_size=200), share=0.5)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)
    read(b"GGUF" + data)
    read(WEIGHTS, data)


@fuzzed(changes, st.integers(0, 1 << 14), share=0.5)
def test_damaged_and_truncated_files_are_read_or_refused(at: dict[int, int], end: int) -> None:
    for data in (OWN, GGUF):
        read(damaged(data, at))
        read(data[:end])
    with read_or_refused(AdapterError):
        read_details(damaged(OWN, at))


patterns = st.text("lmqproj_.\\d+*()|^$[]?:{}1", max_size=30)


@fuzzed(
    st.dictionaries(st.sampled_from(sorted(SETTINGS)) | texts, hostile, max_size=3),
    st.dictionaries(patterns, st.floats() | st.integers() | hostile, max_size=3),
    share=0.5,
)
def test_any_settings_are_read_or_refused(settings: dict[str, Any], alphas: dict[str, Any]) -> None:
    read(WEIGHTS, json.dumps({**SETTINGS, **settings}).encode())
    read(WEIGHTS, json.dumps({**SETTINGS, "alpha_pattern": alphas}).encode())


parts = st.sampled_from(
    ["base_model", "model", "layers", "0", "7", "99999999", "self_attn", "q_proj", "lora_A", "weight"]
)
arrays = st.builds(
    lambda shape, kind: np.ones(shape, kind),
    st.lists(st.integers(0, 3) | st.just(64), max_size=3),
    st.sampled_from(["f2", "f4", "f8", "i1", "?"]),
)


@fuzzed(
    st.dictionaries(st.sampled_from(NAMES) | texts | st.lists(parts, max_size=9).map(".".join), arrays, max_size=3),
    share=0.5,
)
def test_any_tensors_are_read_or_refused(tensors: dict[str, np.ndarray]) -> None:
    stored, _ = read_safetensors(WEIGHTS)
    read(write_safetensors({**stored, **tensors}), json.dumps(SETTINGS).encode())
    read(write_safetensors(tensors), json.dumps(SETTINGS).encode())


@fuzzed(st.dictionaries(st.sampled_from(sorted(KEYS)), hostile, min_size=1, max_size=2), share=0.5)
def test_any_metadata_of_a_gguf_file_is_read_or_refused(values: dict[str, Any]) -> None:
    kept = {key: value for key, value in values.items() if value is not None}
    read(gguf_file({**KEYS, **kept}, {f"{name}.lora_{half}": getattr(SMALL.pairs[name], half)
                                      for name in SMALL.pairs for half in "ab"}))  # fmt: skip


@fuzzed(st.dictionaries(st.sampled_from(["sonata_adapter", "architecture", "base_sha256", "name", "adapter_config",
                                         "metadata"]), texts, min_size=1, max_size=3), share=0.5)  # fmt: skip
def test_any_texts_in_the_header_are_read_or_refused(values: dict[str, str]) -> None:
    stored, header = read_safetensors(OWN)
    read(write_safetensors(stored, {**header, **values}))
