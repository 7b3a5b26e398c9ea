"""Adapters at the head's input in the WASM backend's memory: lost writes, no memory, each operation by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.head import NeighbourAdapter
from py_core.backend_errors import BackendError
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import Pair, collect, open_pair, prompt, unfused
from tests.backends.dying_host import WorkersDie
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.llama import TinyLlama

WIDTH = 64


def drawn(width: int) -> NeighbourAdapter:
    states = np.random.default_rng(1).standard_normal((9, width)).astype(np.float32)
    return NeighbourAdapter(states, np.arange(9) % 5, tau=-1)


async def use(pair: Pair, adapter: NeighbourAdapter, ours: TokenSequence, reference: TokenSequence) -> None:
    for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
        backend.use_head_adapter(sequence, await backend.put_head_adapter(adapter))


async def alike(pair: Pair, ours: TokenSequence, reference: TokenSequence) -> None:
    """Logits, scores and the next tokens."""
    for expected, found in (
        (await pair.numpy.last_logits(reference, 4), await pair.other.last_logits(ours, 4)),
        (await pair.numpy.token_logprobs(reference, 2), await pair.other.token_logprobs(ours, 2)),
    ):
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


async def test_an_adapter_that_was_lost_on_its_way_is_brought_again(tmp_path: Path, kernel_wasm) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequences = await pair.prefilled(prompt(40))
    host.lose(1)
    await use(pair, drawn(WIDTH), *sequences)
    await alike(pair, *sequences)
    host.lose(1)
    await alike(pair, *sequences)
    host.lose(1)
    assert await collect(pair.other, sequences[0], 9) == await collect(pair.numpy, sequences[1], 9)
    assert host.lost == 3


async def test_scores_that_were_lost_on_their_way_are_made_again(tmp_path: Path, kernel_wasm) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    sequences = await pair.prefilled(prompt(150))
    host.lose(1)
    await alike(pair, *sequences)


async def test_states_whose_scores_were_lost_are_scored_again(tmp_path: Path, kernel_wasm) -> None:
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)
    tokens = prompt(150)  # more than the rows of a pass
    ours, _ = await pair.prefilled(tokens)
    last = max(name for name in pair.other.graph.taps if name.startswith("residual"))
    states = (await pair.other.hidden(ours, [last]))[last][:-1]
    expected = await pair.other.score_states(ours, states, tokens[1:])
    host.lose(1)
    np.testing.assert_array_equal(await pair.other.score_states(ours, states, tokens[1:]), expected)
    assert host.lost == 1


async def test_an_adapter_for_which_there_is_no_memory_is_refused_and_all_else_runs(
    tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
    sequences = await pair.prefilled(prompt(40))
    adapter = drawn(WIDTH)
    with monkeypatch.context() as patch:
        patch.setattr("py_core.backends.wasm.host_wasmtime._STAGING", 1 << 40)
        with pytest.raises(BackendError, match="Choose a smaller model"):
            await pair.other.put_head_adapter(adapter)
    await alike(pair, *sequences)
    await use(pair, adapter, *sequences)
    assert sequences[0].head_adapter == 1
    await alike(pair, *sequences)


@pytest.mark.parametrize("model", ["gemma2", "gemma3"])
async def test_heads_of_single_operations_run_with_adapters(
    model: str, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("py_core.backends.wasm.lowering.fuse", unfused)
    pair = await open_pair(QUANTIZED[model].write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
    sequences = await pair.prefilled(prompt(70))
    await alike(pair, *sequences)
    await use(pair, drawn(pair.numpy.graph.head_input.width), *sequences)
    await alike(pair, *sequences)


async def test_biases_of_the_output_matrix_are_scored(tmp_path: Path, kernel_wasm) -> None:
    """In parts of the vocabulary, each with its own result."""
    variant = replace(QUANTIZED["llama with biases of q and v"], biased=("output",))
    pair = await open_pair(variant.write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm()))
    assert "output.bias" in pair.numpy.graph.weights
    await alike(pair, *await pair.prefilled(prompt(40)))
