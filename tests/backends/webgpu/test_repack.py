"""The layout that repack.wgsl makes, read by numpy as layout.py describes it, against the file's own values."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import state_bytes
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.weights.arena import WeightArena
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.formats.quantization import FORMATS, dequantize, nbytes
from py_core.formats.quantization.blocks import IQ4_VALUES, MXFP4_VALUES
from tests.backends.variants import gated
from tests.backends.webgpu.gpu_layout import MemorySource, describe_tensors, gpu_parts, to_gpu_layout

BYTES = np.arange(0, 32, 8, dtype=np.uint32)
few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


HALVES = {
    "Q4_1": [0, 2], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip
"""Offset of the scales in a block; 0 in the other formats."""


def random_blocks(rng: np.random.Generator, form: str, rows: int, columns: int) -> bytes:
    """Rows with random bits in their blocks, except scales that would not be numbers: half of these are subnormal."""
    fmt = FORMATS[form]
    blocks = rng.integers(0, 256, (nbytes(fmt, (rows, columns)) // fmt.block_bytes, fmt.block_bytes), np.uint8)
    if form in ("F32", "BF16"):
        blocks[:, -1] &= 0xBF
        blocks[:, -2] |= 0x80  # their subnormals may be zero on a GPU
        return blocks.tobytes()
    if form == "MXFP4":
        blocks[:, 0] = blocks[:, 0].clip(3, 252)  # likewise, and larger ones are infinite
        return blocks.tobytes()
    for at in HALVES.get(form, [0]):
        blocks[:, at + 1] &= rng.choice(np.array([0x83, 0xBF], np.uint8), len(blocks))
    return blocks.tobytes()


def bits(words: np.ndarray, each: int) -> np.ndarray:
    """uint32 (...) -> the numbers of `each` bits in them, from the lowest on: (..., 32 / each)"""
    return words[..., None] >> np.arange(0, 32, each, dtype=np.uint32) & np.uint32((1 << each) - 1)


def halves_of(words: np.ndarray) -> np.ndarray:
    """uint32 (n,) -> float64 (n, 2)"""
    return np.ascontiguousarray(words).view("<f2").astype(np.float64).reshape(-1, 2)


def read_layout(form: str, quants: bytes, scales: bytes, blocks: int) -> np.ndarray:
    """Values of all blocks, float32 (blocks * 32,)."""
    if form in ("F32", "F16", "BF16"):
        return dequantize(quants, FORMATS[form], (blocks * 32,))
    layout = LAYOUTS[form]
    words = np.frombuffer(scales, "<u4")
    supers, highs, total = layout.sections(blocks)
    assert len(words) == total
    assert len(quants) == blocks * layout.quant_words * 4
    if form == "Q8_0":
        codes = np.frombuffer(quants, np.int8).reshape(blocks, 32).astype(np.int64)
    elif form in ("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"):
        # [half h, byte j, w] -> [half h, w, byte j]
        pairs = bits(np.frombuffer(quants, np.uint8).reshape(blocks, 2, 4).astype(np.uint32), 2)[..., :4]
        codes = pairs.swapaxes(2, 3).reshape(blocks, 32).astype(np.int64)
    else:
        stored = np.frombuffer(quants, np.uint8).reshape(blocks, 16)
        codes = np.hstack((stored & 15, stored >> 4)).astype(np.int64)
    if form in ("IQ4_NL", "IQ4_XS"):
        codes = np.array(IQ4_VALUES)[codes]
    if form == "MXFP4":
        powers = (np.ascontiguousarray(words).view("<u2")[:blocks, None].astype(np.uint32) << 16).view(np.float32)
        return (powers * np.array(MXFP4_VALUES, np.float32)[codes]).ravel()
    high = words[highs:].reshape(blocks, -1) if layout.high_words else None
    if layout.high_words:
        # [word, byte j, w] -> [word, w, byte j]
        each = bits(high, layout.high_words).reshape(blocks, layout.high_words, 4, 8 // layout.high_words)
        codes |= each.swapaxes(2, 3).reshape(blocks, 32).astype(np.int64) << (2 if form == "Q3_K" else 4)
    first = words[:supers]
    if layout.superblocks:
        d, m = np.repeat(halves_of(words[supers:highs]), 8, axis=0).T[:, :, None]
        if form in ("TQ1_0", "TQ2_0"):
            assert not m.any()
            assert not len(first)
            return np.float32(d * (codes - 1)).ravel()
        pair = np.ascontiguousarray(first).view(np.uint8).reshape(blocks, 2)
        if form == "Q2_K":
            s, t = (np.repeat(nibbles.astype(np.int64), 16, axis=1) for nibbles in (pair & 15, pair >> 4))
            return np.float32(d * s * codes - m * t).ravel()
        if form in ("Q3_K", "Q6_K", "IQ4_XS"):
            assert not m.any()
        if form == "IQ4_XS":
            return np.float32(d * pair.view("<i2").astype(np.int64) * codes).ravel()
        if form in ("Q3_K", "Q6_K"):
            middle = {"Q3_K": 4, "Q6_K": 32}[form]
            return np.float32(d * np.repeat(pair.view(np.int8).astype(np.int64), 16, axis=1) * (codes - middle)).ravel()
        return np.float32(d * pair[:, :1] * codes - m * pair[:, 1:]).ravel()
    if layout.scale_halves == 2:
        d, m = halves_of(first).T[:, :, None]
        return np.float32(d * codes + m).ravel()
    d = halves_of(first).ravel()[:, None]
    assert not d[blocks:].any(), "the half without a block"
    d = d[:blocks]
    return np.float32(d * (codes - {"Q4_0": 8, "Q5_0": 16}.get(form, 0))).ravel()


@st.composite
def joined(draw: st.DrawFn, form: str) -> tuple[list[int], int]:
    """Rows of tensors that can form one matrix, and their columns."""
    fmt = FORMATS[form]
    columns = max(32, fmt.block_size) * draw(st.integers(1, 5))
    unit = LAYOUTS[form].unit
    rows = [draw(st.integers(1, 20)) for _ in range(draw(st.integers(1, 3)))]
    return [count * unit for count in rows[:-1]] + rows[-1:], columns


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data(), piece=st.sampled_from([300, 1000, 4 << 20]), seed=st.integers(0, 999))
@few
def test_every_value_is_where_the_layout_says(host: WgpuHost, form, data, piece, seed) -> None:
    rows, columns = data.draw(joined(form))
    rng = np.random.default_rng(seed)
    tensors = [random_blocks(rng, form, count, columns) for count in rows]
    ((part, quants, scales),) = gpu_parts(host, tensors, form, columns, piece)
    assert (part.rows, part.blocks) == (sum(rows), sum(rows) * columns // 32)
    expected = dequantize(b"".join(tensors), FORMATS[form], (sum(rows) * columns,))
    np.testing.assert_array_equal(read_layout(form, quants, scales, part.blocks), expected)


@pytest.mark.parametrize("form", gated(FORMATS, lambda form: form in ("F32", "Q4_0", "Q6_K")))
def test_a_matrix_is_cut_where_a_binding_ends(host: WgpuHost, monkeypatch, form: str) -> None:
    columns = max(96, FORMATS[form].block_size)
    limit = 7 * columns // 32 * LAYOUTS[form].quant_words * 4 + 3
    monkeypatch.setattr(host, "adapter", dataclasses.replace(host.adapter, max_binding_size=limit))
    data = random_blocks(np.random.default_rng(1), form, 17, columns)
    parts = gpu_parts(host, [data], form, columns, piece=1000)
    assert [(part.first_row, part.rows) for part, _, _ in parts] == [(0, 7), (7, 7), (14, 3)]
    got = np.concatenate([read_layout(form, quants, scales, part.blocks) for part, quants, scales in parts])
    np.testing.assert_array_equal(got, dequantize(data, FORMATS[form], (17 * columns,)))


@pytest.mark.parametrize("form", FORMATS)
def test_a_kernel_reads_scales_of_any_size_exactly(run_kernel, form: str) -> None:
    """The rows of a table, one after the other: every bit of its blocks counts, subnormal scales too."""
    rows, columns = 5, max(96, FORMATS[form].block_size)
    data = random_blocks(np.random.default_rng(2), form, rows, columns)
    state = state_bytes([(row, row, 0) for row in range(rows)])
    (out,) = run_kernel(
        "embedding", [state, *to_gpu_layout(run_kernel.host, data, form, columns), bytes(4 * rows * columns)],
        (columns // 32, rows, 1), {"dequantize": f"dequantize_{form.lower()}"},
        MAX_ROWS=rows, K=columns, N=rows, BLOCKS=rows * columns // 32, FIRST_ROW=0, SCALE=1.0,
        WORKGROUP=4,
    )  # fmt: skip
    expected = dequantize(data, FORMATS[form], (rows, columns))
    np.testing.assert_array_equal(np.frombuffer(out, np.float32).reshape(rows, columns), expected)


@pytest.mark.parametrize(
    ("form", "rows", "can"),
    [
        ("Q4_0", (3, 4), False), ("Q4_0", (4, 3), True), ("Q8_0", (2, 3, 4), False), ("Q5_0", (2, 4, 3), True),
        ("Q4_1", (3, 5), True), ("Q5_1", (1, 1), True), ("F16", (1, 3), True),
    ],
)  # fmt: skip
def test_tensors_join_where_no_word_is_shared(host: WgpuHost, form: str, rows: tuple[int, ...], can: bool) -> None:
    infos = describe_tensors([bytes(nbytes(FORMATS[form], (count, 96))) for count in rows], form, 96)
    assert WeightArena(host, infos).can_join(list(infos)) is can


def test_what_repacking_takes_is_given_back_also_after_a_failure(host: WgpuHost) -> None:
    data = random_blocks(np.random.default_rng(3), "Q4_0", 8, 64)
    infos = describe_tensors([data], "Q4_0", 64)
    arena = WeightArena(host, infos)
    part = arena.place(["0"]).parts[0]
    before = (set(host._buffers), set(host._recorded))
    with pytest.raises(EOFError):
        asyncio.run(arena.upload(MemorySource(data[:-1]), None))
    assert (set(host._buffers), set(host._recorded)) == before
    asyncio.run(arena.upload(MemorySource(data), None))
    assert (set(host._buffers), set(host._recorded)) == before
    host.destroy_buffer(part.quants.buffer)
