"""Block formats: layout and rounding as ggml's own Python package `gguf` has them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from py_core.formats.gguf import read_header
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
from py_core.formats.source import FileSource

f32 = np.float32
rows_of_floats = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.sampled_from([256, 512])),
    elements=st.floats(-1e4, 1e4, width=32),
)
K_QUANTS = [name for name, fmt in FORMATS.items() if fmt.block_size == 256 and name[:2] != "TQ"]
SEARCHED = [*K_QUANTS, "IQ4_NL"]
every_format = pytest.mark.parametrize("name", list(FORMATS))


def ggmls(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


@st.composite
def stored_rows(draw: st.DrawFn, fmt: BlockFormat) -> np.ndarray:
    """uint8 (2 rows, bytes of 3 blocks): any bits, including NaN, infinite and denormal scales."""
    size = 6 * fmt.block_bytes
    if draw(st.booleans()):  # hypothesis likes zeros, random bytes reach every bit
        return np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 256, (2, size // 2), dtype=np.uint8)
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(2, -1)


@every_format
@given(data=st.data())
def test_dequantize_is_bit_exact_for_any_block(name: str, data: st.DataObject) -> None:
    fmt = FORMATS[name]
    raw = data.draw(stored_rows(fmt))
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, ggmls(name)) if name != "F32" else raw.view(f32)
    with np.errstate(all="raise"):
        values = dequantize(raw.tobytes(), fmt, (2, 3 * fmt.block_size))
    assert values.dtype == np.float32
    assert values.shape == expected.shape
    # A NaN may come with any payload.
    bits, expected_bits = (np.where(np.isnan(x), -1, x.view(np.int32)) for x in (values, expected))
    np.testing.assert_array_equal(bits, expected_bits)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("F32", "BF16", "MXFP4")])
def test_scales_without_a_number_give_elements_without_one(name: str) -> None:
    fmt = FORMATS[name]
    for half in (b"\x00\x7c", b"\x00\xfc", b"\x00\x7e", b"\x01\x7c"):  # inf, -inf, NaN, signalling NaN
        with np.errstate(all="raise"):
            values = dequantize(half * (fmt.block_bytes // 2), fmt, (fmt.block_size,))
        assert not np.isfinite(values).any()


@every_format
@given(data=st.data())
def test_rows_may_be_read_alone(name: str, data: st.DataObject) -> None:
    fmt = FORMATS[name]
    raw = data.draw(stored_rows(fmt))
    both = dequantize(raw, fmt, (2, 3 * fmt.block_size))
    for row in range(2):
        np.testing.assert_array_equal(dequantize(memoryview(raw[row]), fmt, (3 * fmt.block_size,)), both[row])


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in SEARCHED])
@given(rows=rows_of_floats)
def test_quantize_gives_the_bytes_of_ggml(name: str, rows: np.ndarray) -> None:
    rows[np.abs(rows) < 1e-30] = 0  # gguf's inverse of a denormal scale is infinite
    with np.errstate(all="ignore"):
        expected = quants.quantize(rows, ggmls(name))
    assert quantize(rows, FORMATS[name]) == expected.tobytes()


# Relative to the largest magnitude. A search for the smallest sum of errors may leave one element with a large one. If
# a block of Q4_0 or Q5_0 has both a and -a, one of them is a step off.
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("F32", 0), ("F16", 1 / 2048), ("BF16", 1 / 256), ("Q4_0", 1.01 / 8), ("Q4_1", 1.02 / 15), ("Q5_0", 1.01 / 16),
        ("Q5_1", 1.02 / 31), ("Q8_0", 0.51 / 127), ("Q2_K", 1 / 2), ("Q3_K", 1 / 3), ("Q4_K", 1 / 7),
        ("Q5_K", 1 / 15), ("Q6_K", 1 / 16), ("IQ4_NL", 1 / 6), ("IQ4_XS", 1 / 6), ("MXFP4", 1 / 4), ("TQ1_0", 1 / 2),
        ("TQ2_0", 1 / 2),
    ],
)  # fmt: skip
@given(rows=rows_of_floats)
def test_a_round_trip_stays_within_the_formats_steps(name: str, error: float, rows: np.ndarray) -> None:
    fmt = FORMATS[name]
    blocks = rows.reshape(-1, fmt.block_size)
    errors = np.abs(dequantize(quantize(blocks, fmt), fmt, blocks.shape) - blocks).max(axis=1)
    halves = 1e-3 if name not in ("F32", "F16", "BF16") else 0  # the scales are rounded too, small ones to zero
    assert (errors <= np.abs(blocks).max(axis=1) * (error + halves) + (name != "F32") * 2e-4).all()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("F16", 2.063e-4), ("BF16", 1.662e-3), ("Q4_0", 0.08629), ("Q4_1", 0.07807), ("Q5_0", 0.04275),
        ("Q5_1", 0.03804), ("Q8_0", 0.005364), ("Q2_K", 0.2683), ("Q3_K", 0.1513), ("Q4_K", 0.07056),
        ("Q5_K", 0.03512), ("Q6_K", 0.01760), ("IQ4_NL", 0.07591), ("IQ4_XS", 0.07653), ("MXFP4", 0.1148),
        ("TQ1_0", 0.8085), ("TQ2_0", 0.8085),
    ],
)  # fmt: skip
def test_the_measured_error_of_normal_weights(name: str, error: float) -> None:
    assert root_mean_square_error(name, normal_rows()) == pytest.approx(error, rel=0.005)


def normal_rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)


def root_mean_square_error(name: str, rows: np.ndarray) -> float:
    back = dequantize(quantize(rows, FORMATS[name]), FORMATS[name], rows.shape)
    return float(np.sqrt(np.mean((back - rows) ** 2)))


# Errors of ggml's C quantizers without an importance matrix (llama.cpp 0c1e57098), on the same numbers: normal ones,
# and those of the real model's blk.3.ffn_down.weight.
GGML_ERRORS = {
    "Q2_K": (0.29564, 0.0559242), "Q3_K": (0.151752, 0.0282121), "Q4_K": (0.071234, 0.00336026),
    "Q5_K": (0.0363329, 0.00355385), "Q6_K": (0.0177353, 0.00325023), "IQ4_NL": (0.0763187, 0.01381),
    "IQ4_XS": (0.0768514, 0.013946),
}  # fmt: skip


@pytest.mark.parametrize("name", GGML_ERRORS)
async def test_the_search_for_scales_loses_no_more_than_ggmls(name: str, model_path: Path) -> None:
    normal, real = GGML_ERRORS[name]
    assert root_mean_square_error(name, normal_rows()) < normal
    source = FileSource(model_path)
    info = (await read_header(source)).tensors["blk.3.ffn_down.weight"]
    values = dequantize(await source.read(info.offset, info.nbytes), info.format, info.shape)
    assert root_mean_square_error(name, values.reshape(-1, 512)) < real


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K"])
@given(seed=st.integers(0, 1000))
def test_quantizing_what_was_dequantized_keeps_the_values(name: str, seed: int) -> None:
    fmt = FORMATS[name]
    low, high = {"Q4": (-8, 7), "Q5": (-16, 15), "Q6": (-32, 31), "Q8": (-127, 127)}[name[:2]]
    rows = np.random.default_rng(seed).integers(low, high + 1, (2, 256)).astype(np.float32)
    rows[:, ::16], rows[:, 1::16] = low, high  # the whole range is used, so the scale is exactly 1
    np.testing.assert_array_equal(dequantize(quantize(rows, fmt), fmt, rows.shape), rows)


@pytest.mark.parametrize("name", ["Q2_K", "Q4_K", "Q5_K"])
@given(seed=st.integers(0, 1000))
def test_groups_of_a_k_quant_have_scales_and_minima_of_their_own(name: str, seed: int) -> None:
    rng, most = np.random.default_rng(seed), {"Q2_K": 3, "Q4_K": 15, "Q5_K": 31}[name]
    scales, minima = rng.permutation([63, 1, 2, 17, 32, 48, 5, 62]), rng.permutation([63, 0, 1, 31, 33, 60, 16, 9])
    if name == "Q2_K":
        scales, minima = rng.permutation(16).clip(1), rng.permutation(16)
    codes = rng.integers(0, most + 1, (len(scales), 256 // len(scales)))
    codes[:, :2] = 0, most
    # The smallest element is the minimum and the largest is the scale's `most` steps above it.
    rows = (codes * scales[:, None] - minima[:, None]).astype(np.float32).reshape(1, 256)
    np.testing.assert_array_equal(dequantize(quantize(rows, FORMATS[name]), FORMATS[name], (1, 256)), rows)


def test_groups_of_q6_k_have_scales_of_their_own() -> None:
    rng = np.random.default_rng(0)
    scales = np.array([-128, 127, -127, *rng.integers(-126, 127, 13)])
    codes = rng.integers(-31, 32, (16, 16))
    codes[:, 0] = -32
    rows = (codes * scales[:, None]).astype(np.float32).reshape(1, 256)
    fmt = FORMATS["Q6_K"]
    np.testing.assert_array_equal(dequantize(quantize(rows, fmt), fmt, (1, 256)), rows)


def test_the_largest_steps_of_q6_k_may_have_either_sign() -> None:
    rows, fmt = np.repeat(np.tile(f32([1, -1]), 8), 16)[None], FORMATS["Q6_K"]
    back = dequantize(quantize(rows, fmt), fmt, rows.shape)
    assert np.abs(back - rows).max() <= 1 / 128  # 127 / 128: there is no scale of +128


@pytest.mark.parametrize("name", K_QUANTS)
def test_where_halves_are_too_coarse_a_k_quant_is_hardly_worse_than_zeros(name: str) -> None:
    rng, fmt = np.random.default_rng(0), FORMATS[name]
    for size in np.geomspace(1e-6, 1e-2, 40):
        rows = (rng.standard_normal((4, 256)) * size).astype(np.float32)
        back = dequantize(quantize(rows, fmt), fmt, rows.shape)
        assert np.linalg.norm(back - rows) < 1.05 * np.linalg.norm(rows)


def test_bf16_rounds_to_nearest_and_halves_to_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], np.uint32)
    stored = np.frombuffer(quantize(bits.view(f32), FORMATS["BF16"]), np.uint16)
    assert list(stored) == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0xBF82]


def test_q8_0_rounds_halves_away_from_zero_and_nothing_else() -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, :7] = [127, 0.5, -0.5, np.nextafter(f32(0.5), f32(0)), 2.5, 1.5, -3.5]
    assert list(np.frombuffer(quantize(row, FORMATS["Q8_0"]), np.int8)[2:9]) == [127, 1, -1, 0, 3, 2, -4]


@every_format
def test_zeros_stay_zeros(name: str) -> None:
    zeros = np.zeros((2, 256), np.float32)
    np.testing.assert_array_equal(dequantize(quantize(zeros, FORMATS[name]), FORMATS[name], (2, 256)), zeros)


def test_tiny_values_become_zero_rather_than_garbage() -> None:
    rows = np.full((1, 256), 1e-39, np.float32)
    for name in FORMATS.keys() - {"F32", "F16", "BF16"}:
        assert quantize(rows, FORMATS[name]) == quantize(0 * rows, FORMATS[name])


def test_sizes_are_those_of_ggml() -> None:
    for fmt in FORMATS.values():
        assert fmt.ggml_type == ggmls(fmt.name)
        assert (fmt.block_size, fmt.block_bytes) == gguf.GGML_QUANT_SIZES[ggmls(fmt.name)]
    assert nbytes(FORMATS["Q6_K"], (3, 512)) == 3 * 2 * 210
    assert not FORMATS_BY_TYPE.keys() & UNSUPPORTED_TYPES.keys()


@pytest.mark.parametrize("name", K_QUANTS)
@pytest.mark.parametrize("columns", [1, 32, 255, 257, 576])
def test_rows_of_k_quants_must_be_whole_blocks(name: str, columns: int) -> None:
    said = f"a row of {columns} elements cannot be stored in {name}, which packs 256 at a time"
    for call in (
        lambda: nbytes(FORMATS[name], (2, columns)),
        lambda: quantize(np.zeros((2, columns), np.float32), FORMATS[name]),
        lambda: dequantize(bytes(FORMATS[name].block_bytes), FORMATS[name], (columns,)),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="a row of 48 elements cannot be stored in Q4_0, which packs 32 at a time"):
        nbytes(FORMATS["Q4_0"], (2, 48))


@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (-32,)])
def test_empty_and_negative_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        nbytes(FORMATS["F32"], shape)


@every_format
@pytest.mark.parametrize("wrong", [-1, 1])
def test_data_of_the_wrong_length_is_refused(name: str, wrong: int) -> None:
    fmt = FORMATS[name]
    needed = 2 * 256 // fmt.block_size * fmt.block_bytes
    said = rf"{name} of shape \(2, 256\) takes {needed} bytes, {needed + wrong} were given"
    with pytest.raises(ValueError, match=said):
        dequantize(bytes(needed + wrong), fmt, (2, 256))


@pytest.mark.parametrize("bad", [np.nan, np.inf, np.finfo(np.float32).max, -1e9])
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "F32"])
def test_values_that_do_not_fit_are_refused(name: str, bad: float) -> None:
    row = np.ones((1, 256), np.float32)
    row[0, 7] = bad
    if (name == "BF16" and bad == -1e9) or (name == "MXFP4" and np.isfinite(bad)):  # their range is a float's
        assert quantize(row, FORMATS[name])
        return
    with pytest.raises(ValueError, match=r"cannot be stored|too large"):
        quantize(row, FORMATS[name])


def test_unsupported_format_is_named_with_the_tensor_and_the_way_out() -> None:
    with pytest.raises(UnsupportedFormatError) as error:
        format_for_type(16, "blk.0.ffn_up.weight")
    assert str(error.value) == (
        "Tensor blk.0.ffn_up.weight uses IQ2_XXS, which Sonata cannot read yet. Use a file in F32, "
        "F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, TQ1_0 or TQ2_0."
    )
    with pytest.raises(UnsupportedFormatError, match="format number 99"):
        format_for_type(99, "x")
    with pytest.raises(UnsupportedFormatError, match="IQ3_S"):
        dequantize(bytes(110), UNSUPPORTED_TYPES[21], (256,))
