"""GGUF: written files can be read, and invalid ones are rejected."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.formats.gguf import GGUFError, GGUFHeader, NeedMoreData, parse_header, read_header, write_gguf
from py_core.formats.quantization import FORMATS, UnsupportedFormatError, dequantize, quantize
from py_core.formats.source import FileSource
from tests.formats.gguf_fields import ARRAY, STRING, U32, gguf, key_value, small_gguf, tensor, text


def parse(file: bytes) -> GGUFHeader:
    return parse_header(file, len(file))


class Stream:
    """A source whose size may be unknown and which counts the requested bytes."""

    parts = ()

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data, self.size, self.asked = data, size, list[int]()

    async def prefix(self, n: int) -> bytes:
        self.asked.append(n)
        return self.data[:n]

    async def read(self, offset: int, nbytes: int) -> bytes:
        return self.data[offset : offset + nbytes]


@pytest.fixture(scope="module")
def small_file() -> bytes:
    return small_gguf()


# --- reading written files ---------------------------------------------------------------------------------------

scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
lists = st.one_of(
    st.lists(st.booleans(), min_size=1),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name != "general.alignment"
)
shapes = st.tuples(*[st.integers(1, 4)] * 2, st.sampled_from([256, 512])).flatmap(
    lambda dims: st.integers(0, 2).map(lambda skip: dims[skip:])
)


@given(
    metadata=st.dictionaries(names, scalars | lists, max_size=6),
    tensors=st.dictionaries(names, st.tuples(shapes, st.sampled_from(list(FORMATS.values()))), max_size=5),
    alignment=st.sampled_from([8, 32, 256]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Any], alignment: int
) -> None:
    arrays = {
        name: (np.random.default_rng(index).normal(size=shape).astype(np.float32), fmt)
        for index, (name, (shape, fmt)) in enumerate(tensors.items())
    }
    path = tmp_path / "x.gguf"
    write_gguf(path, metadata, arrays, alignment)
    file = path.read_bytes()
    header = parse(file)
    assert header.version == 3
    assert header.alignment == alignment
    plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in header.metadata.items()}
    plain.pop("general.alignment", None)
    assert plain == metadata
    assert list(header.tensors) == list(arrays)
    for name, (values, fmt) in arrays.items():
        info = header.tensors[name]
        assert (info.shape, info.format, info.offset % alignment) == (values.shape, fmt, 0)
        stored = file[info.offset : info.offset + info.nbytes]
        assert stored == quantize(values, fmt)
        assert dequantize(stored, info.format, info.shape).shape == values.shape
    assert header.end_offset <= len(file) < header.end_offset + alignment


def test_matrices_are_rows_by_columns() -> None:
    header = parse_header(gguf(tensors=(tensor("w", (64, 3)),)))  # ggml's order: 64 columns, 3 rows
    assert header.tensors["w"].shape == (3, 64)
    assert header.tensors["w"].nbytes == 3 * 64 * 4


def test_version_2_reads_the_same() -> None:
    assert parse(gguf((key_value("n", U32, struct.pack("<I", 7)),), version=2)).metadata == {"n": 7}


def test_numbers_keep_their_types_and_arrays_of_numbers_are_numpy() -> None:
    values = {
        0: (1, "<B"),
        1: (-1, "<b"),
        2: (2, "<H"),
        3: (-2, "<h"),
        5: (-3, "<i"),
        10: (1 << 63, "<Q"),
        11: (-4, "<q"),
    }
    keys = tuple(key_value(f"k{t}", t, struct.pack(code, value)) for t, (value, code) in values.items())
    array = key_value("a", ARRAY, struct.pack("<IQ3h", 3, 3, -1, 0, 1))
    header = parse(gguf((*keys, key_value("d", 12, struct.pack("<d", 0.1)), array)))
    assert [header.metadata[f"k{t}"] for t in values] == [value for value, _ in values.values()]
    assert header.metadata["d"] == 0.1
    assert header.metadata["a"].dtype == np.int16
    assert header.metadata["a"].tolist() == [-1, 0, 1]


def test_the_writer_refuses_what_gguf_cannot_hold(tmp_path: Path) -> None:
    for value in (None, {"a": 1}, [1, "a"], 1 << 64, [1 << 63, -1], 1j):
        with pytest.raises(TypeError, match="GGUF metadata cannot hold"):
            write_gguf(tmp_path / "x.gguf", {"k": value}, {})


# --- the real model -------------------------------------------------------------------------------------------------


async def test_the_real_model_has_the_tensors_it_should(model_path: Path) -> None:
    source = FileSource(model_path)
    header = await read_header(source)
    kinds = [info.format.name for info in header.tensors.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert header.tensors["token_embd.weight"].shape == (49152, 576)
    assert header.tensors["blk.0.ffn_down.weight"].shape == (576, 1536)
    assert len(header.metadata["tokenizer.ggml.tokens"]) == 49152
    assert header.end_offset == source.size
    norm = header.tensors["output_norm.weight"]
    values = dequantize(await source.read(norm.offset, norm.nbytes), norm.format, norm.shape)
    assert np.isfinite(values).all()
    assert 0.1 < np.abs(values).mean() < 100


# --- prefixes and streams -------------------------------------------------------------------------------------------


def test_every_prefix_asks_for_more_and_makes_progress(small_file: bytes) -> None:
    end = parse(small_file).data_offset
    steps, have = 0, 0
    while True:
        try:
            header = parse_header(small_file[:have])
            break
        except NeedMoreData as short:
            needed = short.needed
        assert have < needed <= end
        have, steps = needed, steps + 1
    assert list(header.tensors) == list(FORMATS)
    assert steps < 200


@pytest.mark.parametrize("size_known", [True, False])
async def test_a_header_longer_than_the_first_prefix_is_read_in_growing_steps(size_known: bool) -> None:
    keys = tuple(key_value(f"k{i}", STRING, text("x" * 300_000)) for i in range(10))
    file = gguf(keys, (tensor("w", (8,)),), bytes(32))
    source = Stream(file, len(file) if size_known else None)
    header = await read_header(source)
    assert header.tensors["w"].offset == len(file) - 32
    assert source.asked == [2 << 20, 4 << 20]


async def test_a_stream_that_ends_inside_the_header_is_called_truncated(small_file: bytes) -> None:
    for cut in (0, 3, 10, 100, 300):
        for size in (None, cut, len(small_file)):
            with pytest.raises(GGUFError, match="truncated") as error:
                await read_header(Stream(small_file[:cut], size))
            assert not isinstance(error.value, NeedMoreData)


async def test_a_huge_claimed_length_is_refused_without_asking_for_it() -> None:
    source = Stream(gguf((key_value("k", STRING, struct.pack("<Q", 1 << 50)),)) + bytes(3 << 20))
    with pytest.raises(GGUFError, match="larger than 64 MiB"):
        await read_header(source)
    assert max(source.asked) <= 2 << 20


def test_truncated_file_names_the_missing_tensor(small_file: bytes) -> None:
    header = parse(small_file)
    info = header.tensors["Q4_0"]
    cut = info.offset + 1
    with pytest.raises(GGUFError) as error:
        parse_header(small_file[:cut], cut)
    assert str(error.value) == (
        f"The GGUF file is truncated: {header.end_offset - cut} of its {header.end_offset} bytes are missing, "
        "from tensor 'Q4_0' on. Download it again."
    )


def test_tensor_data_may_stream_in_later(small_file: bytes) -> None:
    header = parse(small_file)
    assert parse_header(small_file[: header.data_offset]).tensors == header.tensors
    assert parse_header(memoryview(small_file)[: header.data_offset], len(small_file)).tensors == header.tensors


# --- every malformed field ------------------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[bytes, str]] = {
    "magic": (gguf(magic=b"GGML"), "not a GGUF file"),
    "an HTML page": (b"<!DOCTYPE html>", "not a GGUF file"),
    "version 1": (gguf(version=1), "version 1"),
    "version 0": (gguf(version=0), "version 0"),
    "version 4": (gguf(version=4), "version 4; Sonata reads versions 2 and 3"),
    "big-endian": (gguf(version=3 << 24), "big-endian"),
    "tensor count": (
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
        "1152921504606846976 tensors, but a model file may have at most 100000",
    ),
    "key count": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "9223372036854775808 metadata keys"),
    "key length": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40) + bytes(40), "a metadata key would end"),
    "key not UTF-8": (gguf((key_value(b"\xff\xfe", U32, bytes(4)),)), "a metadata key is not UTF-8"),
    "duplicate key": (gguf((key_value("k", U32, bytes(4)),) * 2), "key 'k' appears twice"),
    "value type": (gguf((key_value("k", 13, bytes(8)),)), "'k' has the unknown type 13"),
    "bool of 2": (gguf((key_value("k", 7, b"\x02"),)), "'k' is a bool with the value 2"),
    "bools of 2": (gguf((key_value("k", ARRAY, struct.pack("<IQ", 7, 2) + b"\1\2"),)), "'k' has a bool above 1"),
    "string length": (gguf((key_value("k", STRING, struct.pack("<Q", 1 << 62)),)), "'k' would end at byte 46116860184"),
    "string not UTF-8": (gguf((key_value("k", STRING, text(b"\xc3\x28")),)), "'k' is not UTF-8"),
    "array element type": (gguf((key_value("k", ARRAY, struct.pack("<IQ", 99, 1)),)), "'k' has the unknown type 99"),
    "array of numbers too long": (gguf((key_value("k", ARRAY, struct.pack("<IQ", 4, 1 << 61)),)), "'k' would end"),
    "array of strings too long": (gguf((key_value("k", ARRAY, struct.pack("<IQ", 8, 1 << 20)),)), "'k' would end"),
    "array element not UTF-8": (
        gguf((key_value("k", ARRAY, struct.pack("<IQ", 8, 2) + text("a") + text(b"\xff")),)),
        "element 1 of the metadata value 'k' is not UTF-8",
    ),
    "array of arrays": (gguf((key_value("k", ARRAY, struct.pack("<IQ", 9, 1) * 500),)), "'k' is a list of lists"),
    "alignment not a power of two": (gguf((key_value("general.alignment", U32, struct.pack("<I", 24)),)), "is 24"),
    "alignment too small": (gguf((key_value("general.alignment", U32, struct.pack("<I", 4)),)), "is 4"),
    "alignment zero": (gguf((key_value("general.alignment", U32, bytes(4)),)), "is 0"),
    "alignment a string": (gguf((key_value("general.alignment", STRING, text("32")),)), "is '32'"),
    "no dimensions": (gguf(tensors=(tensor("w", ()) + bytes(8),)), "'w' has 0 dimensions, not 1 to 4"),
    "five dimensions": (gguf(tensors=(tensor("w", (1,) * 5),)), "'w' has 5 dimensions, not 1 to 4"),
    "dimension zero": (gguf(tensors=(tensor("w", (4, 0)),)), r"'w' has the impossible shape \(0, 4\)"),
    "product overflow": (gguf(tensors=(tensor("w", (1 << 32, 1 << 32)),)), "'w' has the impossible shape"),
    "row not whole blocks": (gguf(tensors=(tensor("w", (33,), 2),)), "'w': a row of 33 elements .* Q4_0"),
    "row not whole K blocks": (
        gguf(tensors=(tensor("w", (576,), 12),)),
        "'w': a row of 576 elements .* Q4_K, .* 256 at a time",
    ),
    "offset not aligned": (gguf(tensors=(tensor("w", (8,), offset=8),), data=bytes(64)), "not a multiple of 32"),
    "offset beyond the file": (
        gguf(tensors=(tensor("w", (8,), offset=1 << 40),), data=bytes(32)),
        "missing, from tensor 'w'",
    ),
    "overlap": (
        gguf(tensors=(tensor("v", (16,)), tensor("w", (8,), offset=32)), data=bytes(64)),
        "tensors 'v' and 'w' overlap",
    ),
    "same offset": (gguf(tensors=(tensor("v", (8,)), tensor("w", (8,))), data=bytes(64)), "overlap"),
    "duplicate tensor": (
        gguf(tensors=(tensor("w", (8,)), tensor("w", (8,), offset=32)), data=bytes(64)),
        "tensor 'w' appears twice",
    ),
    "tensor name not UTF-8": (gguf(tensors=(text(b"\xff" * 9) + bytes(32),)), "a tensor's name is not UTF-8"),
    "data missing": (gguf(tensors=(tensor("w", (8,)),)), "missing, from tensor 'w' on"),
}


@pytest.mark.parametrize("case", list(MALFORMED))
def test_malformed_field_is_named(case: str) -> None:
    file, message = MALFORMED[case]
    with pytest.raises(GGUFError, match=message) as error:
        parse(file)
    assert not isinstance(error.value, NeedMoreData)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("name", "shown"), [("blk.0.attn_q.weight", "'blk.0.attn_q.weight'"), ("a\0b", r"'a\x00b'")], ids=ascii
)
def test_unsupported_format_is_named(name: str, shown: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=re.escape(f"Tensor {shown} uses IQ3_S, which Sonata cannot read")):
        parse_header(gguf(tensors=(tensor(name, (256,), 21),)))
