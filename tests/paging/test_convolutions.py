"""Rows of convolutions in pages, and states: whatever becomes of the pages, a sequence has the logits that it has
alone. Tiny models.

tests/backends/test_interleavings.py has what happens in any order; here is what it cannot choose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.paging.page_table import PAGE, REWIND
from py_core.paging.tiers import TierPolicy
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, alone, collect, open_pair, prompt
from tests.models.architectures.variants import CONVOLUTIONS, DELTA_RULES


@pytest.fixture(params=["webgpu", "webgpu-delta rules", "wasm", "wasm-delta rules"])
async def tiny(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Pair]:
    kind, _, model = request.param.partition("-")
    path = (DELTA_RULES if model else CONVOLUTIONS).write(tmp_path / "tiny.gguf")
    host = WgpuHost() if kind == "webgpu" else WasmtimeHost(kernel_wasm(), workers=2)
    pair = await open_pair(path, host, tiers=TierPolicy(2, 0, 0))
    yield pair
    pair.other.close()


async def assert_alike(tiny: Pair, sequence: TokenSequence) -> None:
    reference = tiny.numpy.new_sequence()
    await tiny.numpy.prefill(reference, sequence.tokens)
    expected, got = await tiny.numpy.logits(reference), await tiny.other.logits(sequence)
    assert np.abs(got - expected).max() <= 2e-3 * np.abs(expected).max()


async def test_near_its_end_a_text_goes_back_for_nothing_and_further_to_a_pages_beginning(tiny: Pair) -> None:
    engine, text = Engine(tiny.other, ()), prompt(120, seed=1)
    sequence = engine.new_sequence()
    least, in_first = len(text) - REWIND, PAGE - REWIND
    steps = [(120, 0), (119, 118), (least + 1, least), (least - 3, PAGE), (PAGE + 1, PAGE), (in_first + 1, in_first)]
    if tiny.other.pages.table.states:
        steps[-1] = (in_first + 1, 0)  # so many branches have taken each other's states
    for length, reused in steps:
        await engine.prefill(sequence, [*text[: length - 1], length], timings := Timings())
        assert timings.reused_tokens == reused, length
        await assert_alike(tiny, sequence)


@pytest.mark.every_backend
async def test_steps_that_nobody_waits_for_leave_no_rows_that_are_missed(tiny: Pair, monkeypatch) -> None:
    backend = tiny.other
    assert isinstance(backend, PipelinedBackend)
    monkeypatch.setattr(backend.decoder.times, "batch", lambda rows, seconds: 40)
    sequence = backend.new_sequence()
    await backend.prefill(sequence, prompt(70, seed=2))
    steps = backend.decode(sequence, 200, GREEDY)
    async for ids in steps:
        if len(ids) == 40:  # the first step may come alone
            break
    await steps.aclose()
    length = sequence.length
    assert length in (110, 111)
    assert await collect(backend, sequence, 20) == await alone(tiny.numpy, sequence.tokens[:length], 20)
    await assert_alike(tiny, sequence)


async def test_states_are_read_in_the_middle_and_the_text_goes_on(tiny: Pair) -> None:
    ours, reference = await tiny.prefilled(prompt(150, seed=3))
    for start, end in ((20, 31), (0, 9), (70, 140), (148, 150)):
        got, expected = [
            (await backend.hidden(one, ["residual.3"], start, end=end))["residual.3"]
            for backend, one in zip(tiny.both, (ours, reference), strict=True)
        ]
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
        await assert_alike(tiny, ours)


async def test_all_pages_stay_hot(tiny: Pair) -> None:
    ours, _ = await tiny.prefilled(prompt(5 * PAGE, seed=4))
    assert {tier for owner, tier, nbytes in tiny.other.memory().rows() if tier and nbytes} == {"hot"}
    await assert_alike(tiny, ours)


@pytest.mark.every_backend
async def test_a_branch_of_a_shared_page_has_a_state_of_its_own(tiny: Pair) -> None:
    engine, text = Engine(tiny.other, ()), prompt(150, seed=5)
    first, second = engine.new_sequence(), engine.new_sequence()
    await engine.prefill(first, text, Timings())
    await engine.prefill(second, text, Timings())
    await engine.prefill(second, [*text[:145], *prompt(30, seed=6)], timings := Timings())
    assert timings.reused_tokens == 145
    await assert_alike(tiny, second)
    await engine.prefill(first, [*text, *prompt(40, seed=7)], Timings())
    await assert_alike(tiny, first)


async def test_a_text_that_has_lost_all_states_runs_again(tiny: Pair, monkeypatch) -> None:
    engine, table = Engine(tiny.other, ()), tiny.other.pages.table
    text = prompt(3 * PAGE + 9, seed=8)
    first = engine.new_sequence()
    await engine.prefill(first, text, Timings())
    for seed in range(4 * table.states):
        await engine.prefill(engine.new_sequence(), prompt(PAGE + 1, seed=seed), Timings())
    await engine.prefill(first, [*text, 5], timings := Timings())
    assert timings.reused_tokens == (0 if table.states else len(text))
    await assert_alike(tiny, first)


async def test_a_long_text_keeps_states_at_distances_that_grow(tiny: Pair) -> None:
    engine, table = Engine(tiny.other, ()), tiny.other.pages.table
    await engine.prefill(engine.new_sequence(), prompt(7 * PAGE + 60, seed=9), Timings())
    places = sorted(state.place for state in table._states.values())
    assert places == ([1, 3, 4, 5, 6, 7] if table.states else [])
