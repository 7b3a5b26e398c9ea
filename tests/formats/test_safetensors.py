"""Safetensors: written files are read again; damaged and hostile files are refused with a sentence."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors

KINDS = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
tensors = st.dictionaries(
    st.text(max_size=12).filter(lambda name: name != "__metadata__"),
    st.sampled_from(KINDS).flatmap(lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0))),
    max_size=5,
)


@given(tensors, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_what_is_written_is_read_again(written: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    content = write_safetensors(written, metadata)
    found, found_metadata = read_safetensors(content)
    assert found_metadata == metadata
    assert set(found) == set(written)
    for name, array in written.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert write_safetensors(dict(reversed(written.items())), metadata) == content


def test_a_real_file_is_read(minilm) -> None:
    weights, metadata = read_safetensors(minilm[0].read_bytes())
    assert metadata == {"format": "pt"}
    assert weights["embeddings.word_embeddings.weight"].shape == (30522, 384)
    assert weights["encoder.layer.5.output.dense.weight"].dtype == np.float32
    assert not weights["encoder.layer.5.output.dense.weight"].flags.writeable


def test_bf16_is_widened() -> None:
    values = np.array([1.5, -2, 0.0078125], np.float32)
    halves = (values.view("<u4") >> 16).astype("<u2").tobytes()
    found, _ = read_safetensors(_file({"x": _entry("BF16", [3], 0, 6)}, halves))
    np.testing.assert_array_equal(found["x"], values)


def _entry(dtype: Any, shape: Any, start: Any, stop: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def _file(header: Any, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


SMALL = write_safetensors({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int8)})


@given(st.integers(0, len(SMALL) - 1))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(SafetensorsError, match="Download it again"):
        read_safetensors(SMALL[:length])


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"x": _entry("F32", [2], 0, 4)}, "has 4 bytes, but its shape needs 8"),
        ({"x": _entry("F32", [3], 0, 12)}, "ends at byte 12 of 8"),
        ({"x": _entry("F32", [2], 8, 0)}, "ends at byte 0"),
        ({"x": _entry("F32", [-1, -2], 0, 8)}, "invalid shape"),
        ({"x": _entry("F32", [True, 2], 0, 8)}, "invalid shape"),
        ({"x": _entry("F32", [1 << 80, 0], 0, 0)}, "invalid shape"),
        ({"x": _entry("F32", [1] * 40 + [2], 0, 8)}, "invalid shape"),
        ({"x": _entry("F32", 2, 0, 8)}, "invalid shape"),
        ({"x": _entry("F8_E4M3", [8], 0, 8)}, "does not read"),
        ({"x": _entry(["F32"], [2], 0, 8)}, "does not read"),
        ({"x": {"dtype": "F32"}}, "not described as a tensor"),
        ({"x": 3}, "not described as a tensor"),
        ({"x": _entry("F32", [1], 0, 4), "y": _entry("F32", [1], 2, 6)}, "share bytes"),
        ({"__metadata__": {"a": 1}}, "metadata"),
    ],
)
def test_hostile_headers_are_refused(header: Any, said: str) -> None:
    with pytest.raises(SafetensorsError, match=said):
        read_safetensors(_file(header, bytes(8)))


def test_a_type_that_the_format_lacks_is_not_written() -> None:
    with pytest.raises(ValueError, match="complex64"):
        write_safetensors({"x": np.zeros(1, np.complex64)})
