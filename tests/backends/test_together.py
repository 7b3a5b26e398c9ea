"""Sequences that are decoded at the same time share steps; each gets the tokens that it gets alone. Tiny models."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from py_core.adapters.head import NeighbourAdapter
from py_core.backend_errors import BackendError
from py_core.backends import step_times
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.protocols import Backend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine import turns
from py_core.engine.engine import Engine, Timings
from py_core.engine.scheduler import MOST_REQUESTS, Priority
from py_core.sampling import SamplingParams, biased, sample
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import (
    CONTEXT,
    GREEDY,
    alone,
    assert_said_alone,
    open_pair,
    prompt,
    sharing_backend,
    written,
)
from tests.backends.dying_host import DyingHost
from tests.backends.variants import gated
from tests.tiny.adapters import drawn

RULES = [
    GREEDY,
    SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=5),
    SamplingParams(repetition_penalty=1.3, frequency_penalty=0.2),
    SamplingParams(temperature=0.7, repetition_penalty=1.2, penalty_window=16, seed=7),
    SamplingParams(temperature=1.2, min_p=0.02, seed=8),
]
PATIENCE = 300
"""Seconds after which a wait counts as endless, on any machine."""


@pytest.fixture(params=["numpy", "wasm", "webgpu"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Backend]:
    async with sharing_backend(request.param, tmp_path, kernel_wasm) as opened:
        yield opened


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn is one batch, of few steps."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(step_times, "MAX_BATCH", 3)


async def read(backend: Backend, tokens: Sequence[int]) -> TokenSequence:
    sequence = backend.new_sequence()
    await backend.prefill(sequence, tokens)
    return sequence


async def together(
    backend: Backend, sequences: Sequence[TokenSequence], n: int, rules: Sequence[SamplingParams]
) -> list[list[int]]:
    said: list[list[int]] = [[] for _ in sequences]
    async for found in backend.decode_together(sequences, n, rules):
        for one, ids in zip(said, found, strict=True):
            one += ids
    return said


@pytest.mark.parametrize(
    "count", [2, pytest.param(3, marks=pytest.mark.all), pytest.param(5, marks=pytest.mark.every_backend), 8]
)
async def test_rows_of_the_same_steps_are_what_they_would_be_alone(backend: Backend, count: int) -> None:
    texts = [prompt(17 * at + 3, seed=at) for at in range(count)]
    rules = [RULES[at % len(RULES)] for at in range(count)]
    expected = [await alone(backend, *one) for one in zip(texts, [90] * count, rules, strict=True)]
    assert len({tuple(said) for said in expected}) == count
    gaps = [backend.new_sequence() for _ in range(3)]
    sequences = []
    for at, text in enumerate(texts):
        sequences.append(await read(backend, text))
        if at < len(gaps):
            backend.free(gaps[at])  # slots do not follow one another
    assert await together(backend, sequences, 40, rules) == [said[:40] for said in expected]
    # One continues alone, then all together again.
    last = [token async for ids in backend.decode(sequences[-1], 10, rules[-1]) for token in ids]
    assert last == expected[-1][40:50]
    assert await together(backend, sequences[:-1], 50, rules[:-1]) == [said[40:] for said in expected[:-1]]
    assert all(one.tokens == text + said for one, text, said in zip(sequences[:-1], texts, expected, strict=False))


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.every_backend)])
async def test_probabilities_are_those_of_the_model_and_change_no_token(backend: Backend, count: int) -> None:
    texts = [prompt(17 * at + 3, seed=at) for at in range(count)]
    rules = [replace(RULES[at + 2], biases=((at, 4.0),)) for at in range(count)]
    expected = [await alone(backend, text, 20, one) for text, one in zip(texts, rules, strict=True)]
    sequences = [await read(backend, text) for text in texts]
    asked = [replace(one, likeliest=at + 2) for at, one in enumerate(rules)]
    assert await together(backend, sequences, 20, asked) == expected
    for at, (sequence, text) in enumerate(zip(sequences, texts, strict=True)):
        assert list(sequence.probabilities) == list(range(len(text), len(text) + 20))
        for place in (len(text), len(text) + 11, len(text) + 19):
            again = await read(backend, sequence.tokens[:place])
            scores = (await backend.logits(again)).astype(np.float64)
            backend.free(again)
            scores -= np.log(np.exp(scores).sum())
            noted, best = sequence.probabilities[place], np.argsort(-scores)[: at + 2]
            assert [token for token, _ in noted.likeliest] == best.tolist()
            np.testing.assert_allclose([one for _, one in noted.likeliest], scores[best], atol=2e-3)
            assert noted.token == sequence.tokens[place]
            assert noted.logprob == pytest.approx(scores[noted.token], abs=2e-3)


@pytest.mark.every_backend
async def test_biases_are_added_to_the_logits_of_their_row(backend: Backend) -> None:
    text = prompt(40, seed=6)
    plain = await alone(backend, text, 10)
    banned, forced = replace(GREEDY, biases=((plain[0], -100.0),)), replace(RULES[1], biases=((7, 100.0),))
    many = replace(RULES[3], biases=tuple((token, token % 7 - 3.0) for token in range(255, 5, -1)))
    rules = [banned, GREEDY, forced, many]
    expected = [plain[:0], plain, [7] * 10, plain[:0]]
    for at in (0, 3):
        sequence = await read(backend, text)
        for _ in range(10):
            logits = biased(await backend.logits(sequence), rules[at])
            expected[at].append(sample(logits, sequence.tokens, sequence.length, rules[at]))
            await backend.prefill(sequence, expected[at][-1:])
        backend.free(sequence)
    assert plain[0] not in expected[0]
    assert [await alone(backend, text, 10, one) for one in rules] == expected
    assert await together(backend, [await read(backend, text) for _ in rules], 10, rules) == expected
    with pytest.raises(ValueError, match="each once"):
        await alone(backend, text, 1, replace(GREEDY, biases=((1, 1.0), (1, 2.0))))
    with pytest.raises(ValueError, match="from 0 to"):
        await alone(backend, text, 1, replace(GREEDY, biases=((10**6, 1.0),)))


@pytest.mark.every_backend
async def test_adapters_at_the_head_are_those_of_each_row_and_sets_of_matrices_those_of_all(backend: Backend) -> None:
    graph = backend.graph  # type: ignore[attr-defined]
    draw = np.random.default_rng(1)
    head = NeighbourAdapter(draw.standard_normal((9, 64)).astype(np.float32), np.arange(9) % 5, lambda_=0.7, tau=-1)
    number, heads = await backend.add_adapter(drawn(graph, 3)), [0, await backend.put_head_adapter(head)]
    texts, rules = [prompt(30, seed=1), prompt(30, seed=1)], [GREEDY, RULES[2]]
    for adapter in (0, number):
        expected = [await alone(backend, texts[at], 40, rules[at], adapter, heads[at]) for at in (0, 1)]
        sequences = [backend.new_sequence() for _ in texts]
        for sequence, text, head in zip(sequences, texts, heads, strict=True):
            backend.use_adapter(sequence, adapter)
            backend.use_head_adapter(sequence, head)
            await backend.prefill(sequence, text)
        assert await together(backend, sequences, 40, rules) == expected


async def test_all_stop_where_the_context_of_one_is_full(backend: Backend) -> None:
    sequences = [await read(backend, prompt(CONTEXT - 7)), await read(backend, prompt(20))]
    assert [len(said) for said in await together(backend, sequences, 30, [GREEDY, GREEDY])] == [7, 7]


async def test_what_cannot_be_decoded_together_is_refused(backend: Backend) -> None:
    sequences = [await read(backend, prompt(5)) for _ in range(9)]
    with pytest.raises(ValueError, match="it can be 1 to 8, each once"):
        await together(backend, sequences, 5, [GREEDY] * 9)
    with pytest.raises(ValueError, match="each once"):
        await together(backend, sequences[:1] * 2, 5, [GREEDY] * 2)
    backend.use_adapter(sequences[0], await backend.add_adapter(drawn(backend.graph, 3)))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="2 sets of LoRA matrices"):
        await together(backend, sequences[:2], 5, [GREEDY] * 2)
    with pytest.raises(ValueError, match="prefill comes first"):
        await together(backend, [sequences[0], backend.new_sequence()], 5, [GREEDY] * 2)


async def test_workers_that_die_cost_time_only(tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch) -> None:
    # Many runs in which they can die, however fast a step is, and never more losses in a row than a backend tolerates.
    monkeypatch.setattr(step_times, "MAX_BATCH", 8)
    monkeypatch.setattr(step_times, "MOST_BATCHES", 1)
    host = DyingHost(kernel_wasm())
    backend = (await open_pair(written(tmp_path), host)).other
    texts = [prompt(30 + at, seed=at) for at in range(4)]
    expected = [await alone(backend, text, 80, rules) for text, rules in zip(texts, RULES, strict=False)]
    sequences = [await read(backend, text) for text in texts]
    host.dies, host.runs = 3, 0
    assert await together(backend, sequences, 80, RULES[:4]) == expected
    assert host.runs > 9
    backend.close()


@pytest.mark.all
async def test_a_device_that_is_lost_costs_time_only(tmp_path: Path) -> None:
    host = WgpuHost()
    backend = (await open_pair(written(tmp_path), host)).other
    texts = [prompt(30 + at, seed=at) for at in range(4)]
    expected = [await alone(backend, text, 60, rules) for text, rules in zip(texts, RULES, strict=False)]
    sequences = [await read(backend, text) for text in texts]
    said: list[list[int]] = [[] for _ in texts]
    async for found in backend.decode_together(sequences, 60, RULES[:4]):
        if len(said[0]) < 20 <= len(said[0]) + len(found[0]):
            host._device.destroy()
        for one, ids in zip(said, found, strict=True):
            one += ids
    assert said == expected
    backend.close()


class Shared:
    """Counts the rows of calls of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.rows = list[int]()
        decode_together = backend.decode_together

        def counted(sequences, n, sampling, keep_going):  # type: ignore[no-untyped-def]
            self.rows.append(len(sequences))
            return decode_together(sequences, n, sampling, keep_going)

        backend.decode_together = counted  # type: ignore[method-assign]


async def answer(
    engine: Engine, text: Sequence[int], n: int, rules: SamplingParams = GREEDY,
    priority: Priority = Priority.INTERACTIVE, log: list[int] | None = None,
) -> list[int]:  # fmt: skip
    sequence, said = engine.new_sequence(), list[int]()
    await engine.prefill(sequence, text, Timings(), priority=priority)
    async for ids in engine.generate(sequence, n, rules, Timings(), priority=priority):
        said += ids
        if log is not None:
            log.append(sequence.number)
    engine.free(sequence)
    return said


@pytest.mark.usefixtures("short_turns")
async def test_more_than_a_step_has_rows_have_fair_shares(backend: Backend) -> None:
    texts = [prompt(20 + at, seed=at) for at in range(11)]
    expected = [await alone(backend, text, 60) for text in texts]
    shared, log = Shared(backend), list[int]()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*(answer(Engine(backend, ()), text, 60) for text in texts[:1])) == expected[:1]
        engine = Engine(backend, ())
        assert await asyncio.gather(*(answer(engine, text, 60, log=log) for text in texts)) == expected
    assert max(shared.rows) == 8
    # None is done before all have begun.
    first = {number: log.index(number) for number in log}
    last = {number: len(log) - 1 - log[::-1].index(number) for number in log}
    assert len(first) == 11
    assert max(first.values()) < min(last.values())


async def test_only_those_with_the_same_set_and_priority_share_steps(backend: Backend) -> None:
    engine, shared = Engine(backend, ()), Shared(backend)
    number = await engine.add_adapter(drawn(backend.graph, 3))  # type: ignore[attr-defined]
    expected = [await alone(backend, prompt(20, seed=1), 50, adapter=at) for at in (0, number)]
    shared.rows.clear()
    sequences = [engine.new_sequence() for _ in range(2)]
    engine.use_adapter(sequences[1], number)
    for sequence in sequences:
        await engine.prefill(sequence, prompt(20, seed=1), Timings())

    async def say(sequence: TokenSequence) -> list[int]:
        return [one async for ids in engine.generate(sequence, 50, GREEDY, Timings()) for one in ids]

    async with asyncio.timeout(PATIENCE):
        behind = asyncio.ensure_future(answer(engine, prompt(20, seed=1), 50, priority=Priority.BACKGROUND))
        assert await asyncio.gather(*map(say, sequences)) == expected
        assert await behind == expected[0]
    assert set(shared.rows) == {1}


async def test_one_that_has_no_room_fails_alone(backend: Backend) -> None:
    if not isinstance(backend, PipelinedBackend):
        pytest.skip("numpy has no pages")
    engine, reserve = Engine(backend, ()), backend.pages.reserve
    texts = [prompt(20, seed=at) for at in range(3)]
    expected = [await alone(backend, text, 100) for text in texts]

    async def refuses(slot: int, first: int, length: int) -> None:
        if slot == sequences[1].slot and length > 64:
            raise BackendError("There is no room.")
        await reserve(slot, first, length)

    backend.pages.reserve = refuses  # type: ignore[method-assign]
    sequences = [engine.new_sequence() for _ in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        await engine.prefill(sequence, text, Timings())
    said: list[list[int]] = [[] for _ in texts]

    async def say(at: int) -> None:
        async for ids in engine.generate(sequences[at], 100, GREEDY, Timings()):
            said[at] += ids

    async with asyncio.timeout(PATIENCE):
        found = await asyncio.gather(*map(say, range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [type(None), BackendError, type(None)]
    assert said[0] == expected[0]
    assert said[2] == expected[2]
    assert said[1] == expected[1][: len(said[1])]


async def test_too_many_at_a_time_are_refused_with_a_sentence(backend: Backend) -> None:
    engine = Engine(backend, ())
    sequences = [await read(backend, prompt(5)) for _ in range(MOST_REQUESTS + 1)]
    async with asyncio.timeout(PATIENCE):
        going = [engine.generate(one, 300, GREEDY, Timings()) for one in sequences]
        for one in going[:-1]:
            await anext(one)
        with pytest.raises(BackendError, match=f"already answering {MOST_REQUESTS} conversations"):
            await anext(going[-1])
        await going[0].aclose()
        await anext(engine.generate(sequences[-1], 300, GREEDY, Timings()))
        for one in going:
            await one.aclose()


class Speaker:
    """One of several sequences that read, answer, stop, truncate and pause in a random order; records its answers."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, self._draw = engine, random.Random(seed)
        self.sequence = engine.new_sequence()
        self.said: list[tuple[list[int], SamplingParams, list[int]]] = []

    async def act(self, others: Sequence[Speaker]) -> None:
        draw = self._draw
        for _ in range(6):
            what = draw.choice(["read", "read", "answer", "answer", "answer", "stop", "pause", "disturb", "forget"])
            if what == "read" or not self.sequence.length:
                await self._read()
            elif what == "forget":
                self._engine.truncate(self.sequence, draw.randrange(1, self.sequence.length + 1))
            elif what == "disturb":
                other = draw.choice(others)
                if other.sequence.length:
                    self._engine.truncate(other.sequence, draw.randrange(1, other.sequence.length + 1))
            else:
                await self._answer(what)

    async def _read(self) -> None:
        text = prompt(draw_length := self._draw.randrange(1, 150), seed=draw_length)
        reading = asyncio.ensure_future(self._engine.prefill(self.sequence, text, Timings()))
        if self._draw.random() < 0.2:
            await asyncio.sleep(0)
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, BackendError):  # stopped here, or others disturbed it
            await reading

    async def _answer(self, what: str) -> None:
        before, rules = list(self.sequence.tokens), self._draw.choice(RULES)
        said = list[int]()
        most = self._draw.randrange(1, 40) if what == "stop" else 1000
        answer = self._engine.generate(self.sequence, self._draw.randrange(1, 70), rules, Timings())
        async with aclosing(answer) as batches:  # type: ignore[type-var]
            async for ids in batches:
                said += ids
                if len(said) >= most:
                    break
                for _ in range(self._draw.randrange(30) if what == "pause" else 0):
                    await asyncio.sleep(0)
        self.said.append((before, rules, said))


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("seed", gated(range(3), lambda seed: seed == 0))
async def test_whoever_joins_leaves_reads_and_goes_back_each_says_what_he_would_say_alone(
    backend: Backend, seed: int
) -> None:
    engine, shared = Engine(backend, ()), Shared(backend)
    speakers = [Speaker(engine, 100 * seed + at) for at in range(10)]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(one.act(speakers) for one in speakers))
    assert max(shared.rows) > 3
    answers = 0
    for speaker in speakers:
        for before, rules, said in speaker.said:
            await assert_said_alone(backend, before, rules, said)
            answers += bool(said)
        if speaker.sequence.length:
            reference = await read(backend, speaker.sequence.tokens)
            expected = await backend.logits(reference)
            backend.free(reference)
            got = await engine.logits(speaker.sequence)
            assert np.abs(got - expected).max() <= 2e-3 * np.abs(expected).max()
        engine.free(speaker.sequence)
    assert answers > 10
