"""LoRA in the WASM kernels against numpy: single operations on random shapes, and sets in the backend's memory."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from py_core.adapters.lora import LoraAdapter, LoraPair
from py_core.backend_errors import BackendError
from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import (
    ACTIVATIONS,
    BAND_ROWS,
    MATRIX_KINDS,
    Arena,
    Barrier,
    Epilogue,
    MatrixKind,
    Mode,
    Op,
    OpKind,
    activation_bytes,
    real_bits,
)  # fmt: skip
from py_core.backends.wasm.lora import LoraSite, packed_set, rows_bytes
from py_core.backends.wasm.weights import TensorRows
from py_core.formats.quantization import FORMATS, dequantize, quantize
from py_core.models.graph import Graph
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import MODELS, Pair, collect, open_pair, prompt
from tests.backends.dying_host import WorkersDie
from tests.backends.wasm.builds import OTHERS, in_turn
from tests.backends.wasm.kernel_memory import ROOM, few, put, read, run
from tests.backends.wasm.test_wasm_graphs import Block, itself, open_graph, parallel, unlike
from tests.backends.wasm.test_wasm_kernels import matrix
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

EPILOGUES = [Epilogue.NONE, Epilogue.RESIDUAL, Epilogue.SILU, Epilogue.GELU]
"""Epilogues of linears that adapters change."""

LARGEST_ERROR = {Mode.FAST: 0.04, Mode.PRECISE: 8e-4, Mode.FLOAT: 4e-4}
"""Relative to the result's size, like the bounds in kernel_memory.py without a set; these matrices are as large as
the weights."""

parts_of_a_site = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 16), st.integers(0, 3)), min_size=1, max_size=3)
"""Groups of 4 rows, the set's rank for them (0: it does not change them), and the number of the tensor's rows before
them."""


@pytest.mark.parametrize("form", ["Q4_1", "Q8_0", "Q6_K", "F16"])
@given(
    mode=st.sampled_from([Mode.PRECISE, Mode.FAST]), parts=parts_of_a_site, blocks=st.integers(1, 5),
    m=st.integers(1, ROOM), epilogue=st.sampled_from(EPILOGUES), number=st.integers(1, 3), norm=st.booleans(),
    biased=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(  # a tensor that the set changes, between two that it does not
    mode=Mode.PRECISE, parts=[(1, 0, 0), (1, 1, 0), (6, 0, 0)], blocks=1, m=1, epilogue=Epilogue.NONE, number=1,
    norm=False, biased=False, seed=0,
)  # fmt: skip
@settings(few, max_examples=12)
def test_linears_add_what_their_set_says(
    host, form, mode, parts, blocks, m, epilogue, number, norm, biased, seed
) -> None:
    rng = np.random.default_rng(seed)
    k = max(32, FORMATS[form].block_size) * blocks
    gated = epilogue in ACTIVATIONS.values()
    if gated:  # gates and ups, each of whole bands
        parts = [(-(-groups // BAND_ROWS) * BAND_ROWS // 4, rank, before) for groups, rank, before in parts[:1] * 2]
    counts = [4 * groups for groups, _, _ in parts]
    rows = sum(counts)
    n = rows // 2 if gated else rows
    w = quantize(rng.standard_normal((rows, k)).astype(np.float32), FORMATS[form])
    values = dequantize(w, FORMATS[form], (rows, k)).astype(np.float64)
    pairs, deltas = {}, np.zeros((rows, k))
    for at, (groups, rank, before) in enumerate(parts):
        a = rng.standard_normal((rank, k)).astype(np.float32) * 10 ** rng.uniform(-3, 3)
        b = rng.standard_normal((before + 4 * groups, rank)).astype(np.float32)
        if rank:
            pairs[str(at)] = LoraPair(a, b, float(rng.choice([-1, 1]) / (np.abs(a).mean() * rank**0.5)))
            deltas[sum(counts[:at]) : sum(counts[: at + 1])] = pairs[str(at)].delta[before:]
    site = LoraSite(k, tuple(TensorRows(str(at), before, 4 * groups) for at, (groups, _, before) in enumerate(parts)))
    # The set of the other site comes first, so that the offset of this one matters.
    data = packed_set([LoraSite(32, (TensorRows("other", 0, 4),)), site], LoraAdapter("drawn", pairs))

    arena = Arena()
    used = Mode.FLOAT if MATRIX_KINDS[form] >= MatrixKind.FLOAT32 else mode
    x, weight = rng.standard_normal((ROOM, k)).astype(np.float32), rng.standard_normal(k).astype(np.float32)
    y, bias = rng.standard_normal((ROOM, n)).astype(np.float32), rng.standard_normal(rows).astype(np.float32)
    address, out, norm_address = put(host, arena, x), put(host, arena, y), put(host, arena, weight) if norm else 0
    activations = (arena.take(activation_bytes(k, 1) + 64), 0, arena.take(activation_bytes(k, ROOM)), ROOM)
    table, scratch = put(host, arena, bytes(rows_bytes(ROOM))), arena.take(k * 4)
    host.write(table + 4 * number, struct.pack("<I", put(host, arena, data)))
    bias_address = put(host, arena, bias) if biased else 0
    ops = [
        Op(OpKind.QUANTIZE, (address, k, norm_address, real_bits(1e-5), *activations, used, scratch, 0), Barrier.NEVER),
        Op(OpKind.LORA_DOWN, (k, *activations, used, scratch, table, 64), Barrier.MANY_ROWS),
        Op(OpKind.LORA_LINEAR,
           (matrix(host, arena, w, form, rows, k), out, n, 0, epilogue, *activations, used, bias_address,
            0, table, 64)),
    ]  # fmt: skip
    run(host, arena, ops, state_bytes([(0, row, 0) for row in range(m)], adapter=number))

    prepared = (reference.rms_norm(x, weight, 1e-5) if norm else x)[:m].astype(np.float64)
    product = prepared @ (values + deltas).T + (bias if biased else 0)
    for activation, kind in ACTIVATIONS.items():
        if epilogue == kind:
            product = reference.glu(*np.split(product, 2, axis=1), activation)
    expected = y.astype(np.float64)
    expected[:m] = product + (expected[:m] if epilogue == Epilogue.RESIDUAL else 0)
    error = read(host, out, ROOM, n) - expected
    assert (error[m:] == 0).all()
    if m * n >= 32:  # fewer may all be near zero
        assert np.linalg.norm(error) < LARGEST_ERROR[used] * (2 if gated else 1) * np.linalg.norm(product)


def turned(pair: Pair, number: int, *sequences: TokenSequence) -> None:
    """Run the sequences, one of each backend, with the set of this number."""
    for backend, sequence in zip(pair.both, sequences, strict=True):
        backend.use_adapter(sequence, number)


async def add(pair: Pair, adapter: LoraAdapter) -> int:
    """Add it to both backends; returns its number."""
    number = await pair.other.add_adapter(adapter)
    assert await pair.numpy.add_adapter(adapter) == number
    return number


def graph_of(pair: Pair) -> Graph:
    return pair.numpy.graph


async def alike(pair: Pair, ours: TokenSequence, reference: TokenSequence, rows: int = 5) -> None:
    """The last rows' logits equal numpy's."""
    got, expected = await pair.other.last_logits(ours, rows), await pair.numpy.last_logits(reference, rows)
    np.testing.assert_allclose(got, expected, atol=2e-3 * np.abs(expected).max())


@in_turn(["mixed", "mixed k", *QUANTIZED], OTHERS)
async def test_sets_work_for_weights_of_every_layout(tmp_path: Path, kernel_wasm, name: str, build: str) -> None:
    path = (MODELS | QUANTIZED)[name].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm(build)))
    sequences = await pair.prefilled(prompt(70))
    part = "attn_output" if name.endswith("moe") else "ffn"  # experts have no adapters
    for one in (drawn(graph_of(pair), 1), drawn(graph_of(pair), 2, rank=5, only=part)):
        turned(pair, await add(pair, one), *sequences)
        await alike(pair, *sequences)
    await pair.numpy.prefill(sequences[1], await collect(pair.other, sequences[0], 4))
    await alike(pair, *sequences, rows=1)


@pytest.mark.parametrize("block", [parallel, unlike, itself])
async def test_sets_change_linears_that_are_not_fused(tmp_path: Path, kernel_wasm, block: Block) -> None:
    pair = await open_graph(tmp_path / "tiny.gguf", kernel_wasm(), block)
    sequences = await pair.prefilled(prompt(70))
    turned(pair, await add(pair, drawn(graph_of(pair), 1)), *sequences)
    await alike(pair, *sequences)
    await alike(pair, *sequences, rows=1)


async def test_hidden_states_are_those_of_the_set(tmp_path: Path, kernel_wasm) -> None:
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
    ours, reference = await pair.prefilled(prompt(70))
    names = ["residual.1", "final_norm"]
    plain = await pair.other.hidden(ours, names)
    for number in (await add(pair, drawn(graph_of(pair), 1)), 0):
        turned(pair, number, ours, reference)
        states, expected = await pair.other.hidden(ours, names), await pair.numpy.hidden(reference, names)
        for name in names:
            np.testing.assert_allclose(states[name], expected[name], atol=2e-3 * np.abs(expected[name]).max())
            assert (np.abs(states[name] - plain[name]).max() > 0.02 * np.abs(plain[name]).max()) == (number > 0)


async def test_pages_and_sets_take_memory_in_turns_and_touch_none_of_the_others(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama(context=4096, layers=1, formats=("F32",), embedding_format="F32").write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm()))
    plain, adapted = await pair.prefilled(prompt(900)), await pair.prefilled(prompt(300))
    small, large = drawn(graph_of(pair), 1, rank=2), drawn(graph_of(pair), 2, rank=16)
    turned(pair, await add(pair, small), *adapted)
    await alike(pair, *adapted)
    for backend, sequence in zip(pair.both, plain, strict=True):
        await backend.prefill(sequence, prompt(600, seed=1))  # more pages
    number = await add(pair, large)
    for backend, sequence in zip(pair.both, plain, strict=True):
        await backend.prefill(sequence, prompt(900, seed=2))
    await alike(pair, *plain)
    await alike(pair, *adapted)
    turned(pair, number, *plain)
    await alike(pair, *plain)


async def test_sets_that_come_and_go_take_no_more_memory(tmp_path: Path, kernel_wasm) -> None:
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
    pages, ends = pair.other.device.lowering.pages, []  # type: ignore[attr-defined]
    before = pages.end
    for turn in range(12):
        number = await add(pair, drawn(graph_of(pair), turn, rank=1 + 7 * turn % 16))
        ends.append(pages.end)
        for backend in pair.both:
            backend.remove_adapter(number)
    assert before < ends[0] < ends[3] == ends[-1]


async def test_a_set_that_was_lost_on_its_way_is_brought_again(tmp_path: Path, kernel_wasm) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequences = await pair.prefilled(prompt(40))
    host.lose(1)
    turned(pair, await add(pair, drawn(graph_of(pair), 1)), *sequences)
    await alike(pair, *sequences)
    host.lose(1)
    assert await collect(pair.other, sequences[0], 20) == await collect(pair.numpy, sequences[1], 20)
    await alike(pair, *sequences)
    assert host.lost == 2


async def test_a_set_for_which_there_is_no_memory_is_refused_and_all_else_runs(
    tmp_path: Path, kernel_wasm, monkeypatch
) -> None:
    host = WasmtimeHost(kernel_wasm())
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequences = await pair.prefilled(prompt(40))
    number = await add(pair, drawn(graph_of(pair), 1, rank=2))
    end = pair.other.device.lowering.pages.end  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr("py_core.backends.wasm.host_wasmtime._STAGING", 1 << 40)
        with pytest.raises(BackendError, match="Choose a smaller model"):
            await pair.other.add_adapter(drawn(graph_of(pair), 2, rank=16))
    assert pair.other.device.lowering.pages.end == end  # type: ignore[attr-defined]
    turned(pair, number, *sequences)
    await alike(pair, *sequences)
    assert await add(pair, drawn(graph_of(pair), 2, rank=16)) == 2
