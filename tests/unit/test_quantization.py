"""Block formats: layout and rounding as ggml's C code has them."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from py_core.formats.quantization import (
    FORMATS,
    FORMATS_BY_TYPE,
    UNSUPPORTED_TYPES,
    BlockFormat,
    UnsupportedFormatError,
    dequantize,
    format_for_type,
    nbytes,
    quantize,
)

f32 = np.float32
rows_of_floats = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.sampled_from([32, 64, 96])),
    elements=st.floats(-1e4, 1e4, width=32),
)
every_format = pytest.mark.parametrize("name", list(FORMATS))


def half(data: bytes, at: int) -> np.float32:
    return f32(struct.unpack_from("<e", data, at)[0])


def dequantize_block_by_block(data: bytes, fmt: BlockFormat) -> list[np.float32]:
    """ggml's loops, one element at a time."""
    out: list[np.float32] = []
    for at in range(0, len(data), fmt.block_bytes):
        if fmt.name == "F32":
            out.append(f32(struct.unpack_from("<f", data, at)[0]))
        elif fmt.name == "F16":
            out.append(half(data, at))
        elif fmt.name == "Q4_0":
            qs = data[at + 2 : at + 18]
            out += [half(data, at) * f32((q & 15) - 8) for q in qs] + [half(data, at) * f32((q >> 4) - 8) for q in qs]
        elif fmt.name == "Q4_1":
            d, m, qs = half(data, at), half(data, at + 2), data[at + 4 : at + 20]
            out += [d * f32(q & 15) + m for q in qs] + [d * f32(q >> 4) + m for q in qs]
        else:
            out += [half(data, at) * f32(q) for q in struct.unpack_from("<32b", data, at + 2)]
    return out


def quantize_block_by_block(values: list[np.float32], fmt: BlockFormat) -> bytes:
    """ggml's quantize_row_*_ref, one element at a time."""
    out = b""
    for at in range(0, len(values), 32):
        x = values[at : at + 32]
        if fmt.name == "Q8_0":
            d = max(abs(v) for v in x) / f32(127)
            scaled = [float(v * inverse(d)) for v in x]
            q = [int(math.copysign(math.floor(abs(v) + 0.5), v)) for v in scaled]
            out += struct.pack("<e32b", float(d), *q)
            continue
        if fmt.name == "Q4_0":
            peak = max(x, key=abs)
            d = peak / f32(-8)
            out += struct.pack("<e", float(d))
            q = [min(15, int(v * inverse(d) + f32(8.5))) for v in x]
        else:
            low = min(x)
            d = (max(x) - low) / f32(15)
            out += struct.pack("<ee", float(d), float(low))
            q = [min(15, int((v - low) * inverse(d) + f32(0.5))) for v in x]
        out += bytes(q[j] | q[j + 16] << 4 for j in range(16))
    return out


def inverse(d: np.float32) -> np.float32:
    return f32(1) / d if abs(d) > 1e-38 else f32(0)


@every_format
@given(data=st.data())
def test_dequantize_is_bit_exact_for_any_finite_block(name: str, data: st.DataObject) -> None:
    fmt = FORMATS[name]
    raw = bytearray(data.draw(st.binary(min_size=3 * fmt.block_bytes, max_size=3 * fmt.block_bytes)))
    halves = {"F32": 0, "Q4_1": 2}.get(name, 1)
    if name == "F32":
        raw = bytearray(struct.pack("<3f", *data.draw(st.tuples(*[st.floats(width=32, allow_nan=False)] * 3))))
    for block in range(0, len(raw), fmt.block_bytes):
        for at in range(block, block + 2 * halves, 2):
            raw[at : at + 2] = struct.pack("<e", data.draw(st.floats(-65504, 65504, width=16)))
    values = dequantize(bytes(raw), fmt, (3, fmt.block_size))
    expected = np.array(dequantize_block_by_block(bytes(raw), fmt), f32)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values.ravel().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
@given(rows=rows_of_floats)
def test_quantize_gives_the_bytes_of_the_reference_loop(name: str, rows: np.ndarray) -> None:
    assert quantize(rows, FORMATS[name]) == quantize_block_by_block(list(rows.ravel()), FORMATS[name])


@pytest.mark.parametrize(("name", "steps"), [("F32", 0), ("F16", 1 / 2048), ("Q8_0", 0.51 / 127), ("Q4_1", 1.02 / 15)])
@given(rows=rows_of_floats)
def test_a_round_trip_stays_within_half_a_step(name: str, steps: float, rows: np.ndarray) -> None:
    fmt = FORMATS[name]
    back = dequantize(quantize(rows, fmt), fmt, rows.shape)
    tolerance = np.abs(rows).max() * (steps + 1e-3 * (name != "F32")) + 1e-5 * (name != "F32")
    assert np.abs(back - rows).max() <= tolerance


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
@given(seed=st.integers(0, 1000))
def test_quantizing_what_was_dequantized_keeps_the_values(name: str, seed: int) -> None:
    fmt = FORMATS[name]
    rows = np.random.default_rng(seed).integers(0, 16, (2, 64)).astype(np.float32) - 8
    rows[:, ::32], rows[:, 1::32] = -8, 7  # the whole range is used, so the scale is exactly 1
    if name == "Q8_0":
        rows[:, ::32] = -127
    np.testing.assert_array_equal(dequantize(quantize(rows, fmt), fmt, rows.shape), rows)


def test_q8_0_rounds_halves_away_from_zero_and_nothing_else() -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, :7] = [127, 0.5, -0.5, np.nextafter(f32(0.5), f32(0)), 2.5, 1.5, -3.5]
    assert list(np.frombuffer(quantize(row, FORMATS["Q8_0"]), np.int8)[2:9]) == [127, 1, -1, 0, 3, 2, -4]


@every_format
def test_zeros_stay_zeros(name: str) -> None:
    zeros = np.zeros((2, 64), np.float32)
    np.testing.assert_array_equal(dequantize(quantize(zeros, FORMATS[name]), FORMATS[name], (2, 64)), zeros)


def test_tiny_values_become_zero_rather_than_garbage() -> None:
    rows = np.full((1, 32), 1e-39, np.float32)
    for name in ("Q4_0", "Q4_1", "Q8_0"):
        assert quantize(rows, FORMATS[name]) == quantize(0 * rows, FORMATS[name])


def test_sizes_are_those_of_ggml() -> None:
    sizes = {name: nbytes(fmt, (3, 64)) for name, fmt in FORMATS.items()}
    assert sizes == {"F32": 768, "F16": 384, "Q4_0": 108, "Q4_1": 120, "Q8_0": 204}
    assert {fmt.ggml_type: fmt.name for fmt in FORMATS_BY_TYPE.values()} == {
        0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0",
    }  # fmt: skip


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="a row of 48 elements cannot be stored in Q4_0, which packs them by 32"):
        nbytes(FORMATS["Q4_0"], (2, 48))


@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (-32,)])
def test_empty_and_negative_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        nbytes(FORMATS["F32"], shape)


def test_data_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Q4_1 of shape \(2, 32\) takes 40 bytes, 39 were given"):
        dequantize(bytes(39), FORMATS["Q4_1"], (2, 32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
@pytest.mark.parametrize("name", ["F16", "Q4_0", "Q4_1", "Q8_0"])
def test_values_that_do_not_fit_are_refused(name: str, bad: float) -> None:
    row = np.ones((1, 32), np.float32)
    row[0, 7] = bad
    with pytest.raises(ValueError, match=r"cannot be stored|too large"):
        quantize(row, FORMATS[name])


def test_unsupported_format_is_named_with_the_tensor_and_the_way_out() -> None:
    with pytest.raises(UnsupportedFormatError) as error:
        format_for_type(12, "blk.0.ffn_up.weight")
    assert str(error.value) == (
        "tensor blk.0.ffn_up.weight uses Q4_K, which Sonata cannot read yet; use a file in F32, F16, Q4_0, Q4_1 or Q8_0"
    )
    with pytest.raises(UnsupportedFormatError, match="format number 99"):
        format_for_type(99, "x")
    with pytest.raises(UnsupportedFormatError, match="Q6_K"):
        dequantize(bytes(210), UNSUPPORTED_TYPES[14], (256,))
