"""Any bytes given as a safetensors file are read, or refused with a sentence."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from tests.fuzz.harness import found_before, fuzzed, hostile, read_or_refused, texts

SMALL = write_safetensors({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int8)}, {"k": "v"})

sizes = st.integers(-2, 40) | st.sampled_from([1 << 62, 1 << 64, 1e999, 10**30])
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "I8", "BF16", "F64", "BOOL"]) | hostile,
        "shape": st.lists(sizes, max_size=4) | hostile,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | hostile,
    },
)


def read(content: bytes) -> None:
    with read_or_refused(SafetensorsError):
        read_safetensors(content)


@found_before("safetensors")
def test_what_was_found_before_is_refused(path: Path) -> None:
    read(path.read_bytes())


@fuzzed(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    read(content)
    read(struct.pack("<Q", len(content)) + content)


@fuzzed(st.dictionaries(st.integers(0, len(SMALL) - 1), st.integers(0, 255), min_size=1, max_size=6))
def test_damaged_bytes_are_read_or_refused(changes: dict[int, int]) -> None:
    damaged = bytearray(SMALL)
    for at, byte in changes.items():
        damaged[at] = byte
    read(bytes(damaged))


@fuzzed(st.dictionaries(texts | st.just("__metadata__"), entries | hostile, max_size=3), st.binary(max_size=80))
def test_any_header_is_read_or_refused(header: dict[str, Any], body: bytes) -> None:
    text = json.dumps(header).encode()
    read(struct.pack("<Q", len(text)) + text + body)
