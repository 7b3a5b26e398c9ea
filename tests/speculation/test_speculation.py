"""Tokens that are guessed and run together equal those of a decode without guesses, whatever was guessed. Tiny
models."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from py_core.backends import step_times
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import PromptLookup
from py_core.speculation.lookahead import GuessPlan, kind_of
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, open_pair, prompt
from tests.backends.dying_host import DyingHost
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT, TOKENS = 400, 120
SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=5),
    "penalties": SamplingParams(temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.2, seed=7),
    "biases": SamplingParams(temperature=0.9, seed=6, biases=((3, 2.0), (9, -100.0))),
}


def told_before(text: list[int], told: list[int], wrong: float, seed: int = 0) -> PromptLookup:
    """Guesses for the continuation of a text, which occurred before, except for some tokens."""
    draw = random.Random(seed)
    before = [token if draw.random() >= wrong else (token + 1) % 64 for token in told]
    return PromptLookup([*text, *before, *text])


@pytest.fixture(params=["webgpu", "wasm"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[PipelinedBackend]:
    host = WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm())
    made = (await open_pair(written(tmp_path), host)).other
    assert isinstance(made, PipelinedBackend)
    yield made
    made.close()


def written(folder: Path) -> Path:
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    return tiny.write(folder / "tiny.gguf")


async def read(backend: PipelinedBackend, seed: int = 1) -> TokenSequence:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, prompt(90, seed))
    return sequence


async def decoded(backend: PipelinedBackend, sequence: TokenSequence, sampling: SamplingParams, n: int) -> list[int]:
    return [token async for ids in backend.decode(sequence, n, sampling) for token in ids]


class Always:
    """Makes a backend guess whenever there is room, with the most rows; `asked` counts the calls."""

    def __init__(self, backend: PipelinedBackend, patch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        backend.decoder.times.seconds[1] = 1.0e-3
        if isinstance(backend, WebGPUBackend):
            patch.setattr(backend.device.guesses, "rows_that_pay", lambda rehearsal, step, most: self._rows(most) or 1)
            patch.setattr(step_times, "MAX_BATCH", 2)
        else:
            patch.setattr(backend.decoder.lookahead, "plan", self._plan)

    def _plan(self, match: int, unread: int | None, step: float, left: int, most: int) -> GuessPlan | None:
        rows = self._rows(most) if match else 0
        return GuessPlan(kind_of(match), rows) if rows else None

    def _rows(self, most: int) -> int:
        self.asked += 1
        return 8 if most >= 8 else 4 if most >= 4 else 0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param(
            name, wrong, marks=[pytest.mark.every_backend] if wrong == 0.3 and name in ("penalties", "biases") else []
        )
        for name in SAMPLINGS
        for wrong in (0.0, 0.3, 1.0)
    ],
)
async def test_the_tokens_are_those_without_guesses(
    backend: PipelinedBackend, name: str, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = SAMPLINGS[name]
    plain = await read(backend)
    told = await decoded(backend, plain, sampling, TOKENS)
    always = Always(backend, monkeypatch)
    sequence = await read(backend)
    sequence.guesses = told_before(sequence.tokens, told, wrong)
    assert await decoded(backend, sequence, sampling, TOKENS) == told
    assert sequence.stored == sequence.length - 1
    if not wrong:
        assert always.asked < TOKENS / 5
    # The continuation is right, too, with guesses and without.
    sequence.guesses = None
    assert await decoded(backend, sequence, sampling, 20) == await decoded(backend, plain, sampling, 20)


@pytest.mark.every_backend
async def test_the_context_is_filled_to_its_end_and_no_further(
    backend: PipelinedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = await read(backend)
    told = await decoded(backend, plain, GREEDY, CONTEXT)
    assert plain.length == CONTEXT
    Always(backend, monkeypatch)
    sequence = await read(backend)
    sequence.guesses = told_before(sequence.tokens, told, 0.0)
    assert await decoded(backend, sequence, GREEDY, CONTEXT) == told


async def test_adapters_of_linears_and_of_the_head_are_those_of_the_sequence(
    backend: PipelinedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await backend.add_adapter(drawn(backend.graph, 3))  # type: ignore[attr-defined]
    plain = backend.new_sequence()
    backend.use_adapter(plain, number)
    await backend.prefill(plain, prompt(90, 1))
    told = await decoded(backend, plain, GREEDY, 60)
    Always(backend, monkeypatch)
    sequence = backend.new_sequence()
    backend.use_adapter(sequence, number)
    await backend.prefill(sequence, prompt(90, 1))
    sequence.guesses = told_before(sequence.tokens, told, 0.2)
    assert await decoded(backend, sequence, GREEDY, 60) == told


@pytest.mark.every_backend
async def test_two_answers_at_once_keep_their_own_guesses(
    backend: PipelinedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(backend, ())
    engine.speculates = False
    alone = []
    for seed in (1, 2):
        sequence = engine.new_sequence()
        await engine.prefill(sequence, prompt(40, seed) * 3, Timings())
        alone.append([one async for ids in engine.generate(sequence, 60, GREEDY, Timings()) for one in ids])
        engine.free(sequence)
    engine.speculates = True
    Always(backend, monkeypatch)
    streams, got = [], [list[int](), list[int]()]
    for seed in (1, 2):
        sequence = engine.new_sequence()
        await engine.prefill(sequence, prompt(40, seed) * 3, Timings())
        streams.append(engine.generate(sequence, 60, GREEDY, Timings()))
    left = {0, 1}
    while left:
        for at in sorted(left):
            try:
                got[at] += await anext(streams[at])
            except StopAsyncIteration:
                left.discard(at)
    assert got == alone


class DyingAfterAnswers(DyingHost):
    """The workers die in one run after each answer. If they died in each third run, they might die in every try of
    one step."""

    dies, due, deaths = 1, False, 0

    def _is_due(self) -> bool:
        due, self.due = self.due, False
        self.deaths += due
        return due


async def test_workers_that_die_in_a_guess_cost_time_only(
    tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_times, "MAX_BATCH", 2)  # many runs in which they can die, however fast a step is
    host = DyingAfterAnswers(kernel_wasm())
    backend = (await open_pair(written(tmp_path), host)).other
    assert isinstance(backend, PipelinedBackend)
    told = await decoded(backend, await read(backend), GREEDY, TOKENS)
    Always(backend, monkeypatch)
    sequence = await read(backend)
    sequence.guesses = told_before(sequence.tokens, told, 0.2)
    answer = list[int]()
    async for ids in backend.decode(sequence, TOKENS, GREEDY):
        answer += ids
        host.due = True
    assert host.deaths > 9
    host.due = False
    again = await read(backend)
    for token in answer:  # some were read in other passes than without losses: rounding may decide a tie
        logits = await backend.logits(again)
        assert logits[token] > logits.max() - 0.05
        await backend.prefill(again, [token])


async def test_a_device_that_is_lost_in_a_guess_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = WgpuHost()
    backend = (await open_pair(written(tmp_path), host)).other
    assert isinstance(backend, PipelinedBackend)
    plain = await read(backend)
    told = await decoded(backend, plain, GREEDY, TOKENS)
    Always(backend, monkeypatch)
    sequence = await read(backend)
    sequence.guesses = told_before(sequence.tokens, told, 0.2)
    got = list[int]()
    async for ids in backend.decode(sequence, TOKENS, GREEDY):
        if len(got) < 30 <= len(got) + len(ids):
            host._device.destroy()
        got += ids
    assert got == told
    backend.close()
