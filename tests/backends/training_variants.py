"""Variants of the kernels of training that any model may ask for: a browser has to compile each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.training.linears import CHUNK_SNIPPETS

Variant = tuple[str, Mapping[str, str], bool, Mapping[str, Constant]]
"""A kernel, its snippets, True if its workgroup or its memory differs from the previous variants', and its
constants."""


def training_variants() -> Iterator[Variant]:
    matrix = {"K": 768, "N": 100, "BLOCKS": 4800}
    q4_1 = {"dequantize": "dequantize_q4_1", "halves": "halves_unpacked"}
    for slices, wide in ((2, 1), (1, 2)):
        shape = {**matrix, "FIRST_ROW": 96, "SLICES": slices, "WIDE": wide}
        yield "matmul_gradient", q4_1, True, {**shape, "ADD": wide == 2}
    for name in ("q6_k", "f32"):
        yield "matmul_gradient", {"dequantize": f"dequantize_{name}"}, False, {**shape, "ADD": True}
    chunk = {**matrix, "SLICES": 2, "WIDE": 1}
    yield "matmul_gradient", {**q4_1, **CHUNK_SNIPPETS}, False, {**chunk, "ADD": True}
    stored = {"Y_STRIDE": 100, "Y_OFFSET": 0, "EPILOGUE": 0, "GELU": False, "ADD_BIAS": False, "BIAS_AT": 0}
    yield "matmul", {**q4_1, **CHUNK_SNIPPETS}, False, {**chunk, **stored}
    for more in (False, True):
        head = {"CHUNK": 4096, "CAP": 30.0 if more else 0.0, "KL": more, "ADD_BIAS": more, "BIAS_AT": 4}
        yield "loss_sums", {}, more, {**head, "WORKGROUP": 256}
        yield "loss_gradient", {}, more, {**head, "WORKGROUP": 64}
    for name in ("gather_rows", "scatter_rows"):
        yield name, {}, False, {"K": 576, "WORKGROUP": 64}
    for head_dim in (64, 80, 256):
        heads = {"HEADS": 9, "KV_HEADS": 3, "HEAD_DIM": head_dim, "SCALE": 0.125}
        heads |= {"SOFTCAP": 0.0, "WINDOW": 0} if head_dim == 64 else {"SOFTCAP": 50.0, "WINDOW": 512}
        for name in ("packed_attention", "attention_gradient_rows", "attention_gradient_keys"):
            yield name, {}, head_dim == 64, heads
    yield "attention_dots", {}, False, {"HEADS": 9, "HEAD_DIM": 64, "WORKGROUP": 32}
    for add, lanes in ((False, 64), (True, 256)):
        norm = {"K": 576, "HEADS": 1, "EPS": 1e-5, "LANES": lanes, "WORKGROUP": lanes}
        yield "rms_norm_gradient", {}, add, {**norm, "ADD": add}
        yield "soft_cap_gradient", {}, False, {"N": 100, "CAP": 30.0, "WORKGROUP": 64, "ADD": add}
        yield "glu_gradient", {}, False, {"N": 100, "GELU": add, "WORKGROUP": 64}
        rotation = {"PAIRS": 24 if add else 32, "INTERLEAVED": add}
        yield "rope_gradient", {}, False, {"HEADS": 9, "HEAD_DIM": 64, "WORKGROUP": 64, **rotation}
    for name in ("packed_conv", "conv_gradient"):
        yield name, {}, False, {"K": 576, "TAPS": 3, "WORKGROUP": 64}
    for rank in (3, 16):
        pair = {"N": 576, "RANK": rank, "B": rank == 3, "FIRST_ROW": 0, "SCALE": 2.0}
        yield "low_rank_down", {}, rank == 16, {**pair, "ADD": rank == 3}
        yield "low_rank_up", {}, False, {**pair, "ADD": rank == 3, "WORKGROUP": 64}
        yield "low_rank_gradient", {}, rank == 16, {**pair, "COLUMNS": 8}
    wide = {"LANES": 256, "WORKGROUP": 256, "GROUPS": 256}
    yield "gradient_squares", {}, True, {"QUADS": 1000, **wide}
    yield "gradient_norm", {}, True, wide
    yield "pull", {}, False, {"QUADS": 1000, **wide}
    yield "pull", {}, False, {"QUADS": 1000, **wide}
    yield "adamw", {}, False, {"QUADS": 1000, "WORKGROUP": 256}
    yield "fisher", {}, False, {"QUADS": 1000, "WORKGROUP": 256}
