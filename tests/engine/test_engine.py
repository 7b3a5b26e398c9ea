"""The engine keeps a sequence's tokens, and stops where the model says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backend_errors import ContextFullError
from py_core.backends.numpy.backend import CHUNK, NumpyBackend
from py_core.backends.protocols import KeepGoing
from py_core.engine import turns
from py_core.engine.engine import Engine, Timings
from py_core.engine.repetition import LOOP_SCORE
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.backends import backend_pairs
from tests.tiny import adapters as tiny_adapters

GREEDY = SamplingParams()
PROMPT = list(b"Once upon a time")
CONTEXT = 96

OpenModel = Callable[..., Awaitable[Model]]


class FourAtATime(NumpyBackend):
    """Tokens become known four at a time, as on a GPU: an end token may be followed by others."""

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        known: list[list[int]] = [[] for _ in sequences]
        async with aclosing(super().decode_together(sequences, n, sampling, keep_going)) as steps:
            async for found in steps:
                known = [[*before, *ids] for before, ids in zip(known, found, strict=True)]
                if len(known[0]) == 4:
                    yield known
                    known = [[] for _ in sequences]
        if known[0]:
            yield known


class Tuned(NumpyBackend):
    """Its first measurement looks if somebody else wants the device once `look` is set."""

    began = 0
    measures: asyncio.Event
    look: asyncio.Event

    async def tune(self, is_wanted: Callable[[], bool]) -> bool:
        self.began += 1
        if self.began == 1:
            self.measures.set()
            await self.look.wait()
        return not is_wanted()


@pytest.fixture(scope="module", params=[NumpyBackend, FourAtATime], ids=["one at a time", "four at a time"])
def engine(request: pytest.FixtureRequest, tiny_path: Path, open_model: OpenModel) -> Engine:
    """An engine without end tokens; its context is 96 tokens."""
    return asyncio.run(open_model(tiny_path, request.param, context=CONTEXT, end_tokens=())).engine


async def prefill(engine: Engine, sequence: TokenSequence, prompt: Sequence[int]) -> Timings:
    timings = Timings()
    await engine.prefill(sequence, prompt, timings)
    return timings


async def generate(
    engine: Engine, sequence: TokenSequence, n: int, timings: Timings | None = None, *, ignore_end: bool = False
) -> list[int]:
    generated = engine.generate(sequence, n, GREEDY, timings or Timings(), ignore_end=ignore_end)
    return [token async for ids in generated for token in ids]


async def answer(engine: Engine, prompt: Sequence[int], n: int) -> list[int]:
    """The tokens of a new sequence."""
    sequence = engine.new_sequence()
    await prefill(engine, sequence, prompt)
    return await generate(engine, sequence, n)


def first_times(ids: Sequence[int]) -> list[int]:
    """The places of tokens that did not occur before."""
    return [index for index, token in enumerate(ids) if token not in ids[:index]]


async def test_a_shared_beginning_is_not_run_again(engine: Engine) -> None:
    sequence = engine.new_sequence()
    first = await prefill(engine, sequence, [*PROMPT, 1, 2, 3])
    assert (first.prompt_tokens, first.reused_tokens) == (len(PROMPT) + 3, 0)
    second = await prefill(engine, sequence, [*PROMPT, 9, 2, 3, 4])
    assert (second.prompt_tokens, second.reused_tokens) == (len(PROMPT) + 4, len(PROMPT))
    assert sequence.tokens == [*PROMPT, 9, 2, 3, 4]
    assert await generate(engine, sequence, 10) == await answer(engine, [*PROMPT, 9, 2, 3, 4], 10)


async def test_the_same_prompt_runs_its_last_token_alone(engine: Engine) -> None:
    sequence = engine.new_sequence()
    await prefill(engine, sequence, PROMPT)
    said = await generate(engine, sequence, 10)
    assert (await prefill(engine, sequence, PROMPT)).reused_tokens == len(PROMPT) - 1
    assert sequence.tokens == PROMPT
    assert await generate(engine, sequence, 10) == said


async def test_the_next_turn_reuses_the_answer_too(engine: Engine) -> None:
    sequence = engine.new_sequence()
    await prefill(engine, sequence, PROMPT)
    said = await generate(engine, sequence, 10)
    longer = [*PROMPT, *said, *b"and then?"]
    assert (await prefill(engine, sequence, longer)).reused_tokens == len(PROMPT) + 10
    assert await generate(engine, sequence, 10) == await answer(engine, longer, 10)


async def test_reading_a_prompt_is_reported_after_each_pass(engine: Engine) -> None:
    sequence, reports = engine.new_sequence(), list[tuple[int, int]]()
    await engine.prefill(sequence, [5] * 80, Timings(), lambda *report: reports.append(report))
    assert reports == [(0, 80), (CHUNK, 80), (80, 80)]
    reports.clear()
    await engine.prefill(sequence, [5] * 79 + [6] * 5, Timings(), lambda *report: reports.append(report))
    assert reports == [(79, 84), (84, 84)]


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=2, max_size=4))
@settings(max_examples=25)
def test_any_prompts_in_one_session_are_answered_as_in_new_ones(engine: Engine, prompts: list[list[int]]) -> None:
    async def all_in_one() -> None:
        sequence = engine.new_sequence()
        for prompt in prompts:
            held = list(sequence.tokens)
            shared = next((i for i, (a, b) in enumerate(zip(held, prompt, strict=False)) if a != b), len(held))
            timings = await prefill(engine, sequence, prompt)
            assert timings.reused_tokens == min(shared, len(prompt) - 1)
            said = await generate(engine, sequence, 5)
            assert sequence.tokens == prompt + said
            assert said == await answer(engine, prompt, 5)

    asyncio.run(all_in_one())


async def test_an_end_token_stops_and_is_not_yielded(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 24)
    places = first_times(said)
    assert {place % 4 for place in places} == {0, 1, 2, 3}  # first, between and last of four
    for end in places:
        stopping = Engine(engine.backend, {said[end]})
        sequence, timings = stopping.new_sequence(), Timings()
        await stopping.prefill(sequence, PROMPT, timings)
        assert await generate(stopping, sequence, 24, timings) == said[:end]
        assert timings.reason == "end"
        assert timings.new_tokens == end + 1
        assert sequence.tokens == PROMPT + said[: end + 1]


async def test_what_was_in_flight_behind_the_end_never_happened(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 24)
    end = first_times(said)[5]
    sequence = engine.new_sequence()
    stopping = Engine(engine.backend, {said[end]})
    await prefill(stopping, sequence, PROMPT)
    await generate(stopping, sequence, 24)
    followed = [*sequence.tokens, *b"more"]
    assert (await prefill(engine, sequence, followed)).reused_tokens == len(PROMPT) + end + 1
    assert await generate(engine, sequence, 10) == await answer(engine, followed, 10)


async def test_each_of_several_end_tokens_ends(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 24)
    early, late = first_times(said)[3:5]
    stopping = Engine(engine.backend, {said[late], said[early]})
    assert await answer(stopping, PROMPT, 24) == said[:early]


async def test_an_end_token_in_the_prompt_ends_nothing(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 8)
    unsaid = next(token for token in PROMPT if token not in said)
    assert len(await answer(Engine(engine.backend, {unsaid}), PROMPT, 8)) == 8


async def test_an_end_token_may_be_ignored(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 12)
    stopping = Engine(engine.backend, {said[2]})
    sequence, timings = stopping.new_sequence(), Timings()
    await prefill(stopping, sequence, PROMPT)
    assert await generate(stopping, sequence, 12, timings, ignore_end=True) == said
    assert timings.reason == "length"


@pytest.mark.parametrize("backend", [NumpyBackend, FourAtATime])
async def test_an_answer_in_a_loop_ends_and_its_repeats_are_dropped(
    write_model, open_model: OpenModel, backend
) -> None:
    # With one layer and large tied embeddings a model soon repeats itself.
    engine = (await open_model(write_model(layers=1, embedding_spread=1.0), backend, end_tokens=())).engine
    question = backend_pairs.prompt(4, seed=1)
    whole = await answer(engine, question, 400)
    sequence, timings = engine.new_sequence(), Timings()
    await prefill(engine, sequence, question)
    generated = engine.generate(sequence, 400, GREEDY, timings, end_at_loops=True)
    said = [token async for ids in generated for token in ids]
    assert timings.reason == "loop"
    assert len(said) < timings.new_tokens < 250
    assert said == whole[: len(said)]
    kept = len(said) - timings.repeated_tokens
    assert kept + LOOP_SCORE < timings.new_tokens
    assert sequence.tokens == question + whole[:kept]
    assert await generate(engine, sequence, 20) == whole[kept : kept + 20]


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8])
async def test_length_ends_after_exactly_so_many_tokens(engine: Engine, n: int) -> None:
    sequence, timings = engine.new_sequence(), Timings()
    await prefill(engine, sequence, PROMPT)
    assert len(await generate(engine, sequence, n, timings)) == n
    assert (timings.reason, timings.new_tokens) == ("length", n)
    assert sequence.length == len(PROMPT) + n


async def test_an_end_token_at_the_longest_length_is_an_end(engine: Engine) -> None:
    said = await answer(engine, PROMPT, 24)
    end = first_times(said)[4]
    sequence, timings = engine.new_sequence(), Timings()
    await prefill(engine, sequence, PROMPT)
    await generate(Engine(engine.backend, {said[end]}), sequence, end + 1, timings)
    assert timings.reason == "end"


@pytest.mark.parametrize(
    ("room", "wanted", "count", "reason"),
    [(10, 50, 10, "context"), (10, 11, 10, "context"), (10, 10, 10, "length"), (0, 5, 0, "context")],
)
async def test_a_full_context_ends(engine: Engine, room: int, wanted: int, count: int, reason: str) -> None:
    sequence, timings = engine.new_sequence(), Timings()
    await prefill(engine, sequence, [5] * (CONTEXT - room))
    assert len(await generate(engine, sequence, wanted, timings)) == count
    assert timings.reason == reason
    assert sequence.length == CONTEXT - room + count


async def test_a_prompt_longer_than_the_context_leaves_the_session_as_it_was(engine: Engine) -> None:
    sequence = engine.new_sequence()
    await prefill(engine, sequence, PROMPT)
    before = await engine.backend.logits(sequence)
    with pytest.raises(ContextFullError, match=f"97 tokens long, but the model reads at most {CONTEXT}"):
        await prefill(engine, sequence, [*PROMPT, *[7] * (CONTEXT + 1 - len(PROMPT))])
    assert sequence.tokens == PROMPT
    np.testing.assert_array_equal(await engine.backend.logits(sequence), before)
    assert await generate(engine, sequence, 8) == await answer(engine, PROMPT, 8)


async def test_logits_and_hidden_states_are_those_of_the_backend(engine: Engine) -> None:
    sequence, same = engine.new_sequence(), engine.new_sequence()
    await prefill(engine, sequence, PROMPT)
    await engine.backend.prefill(same, PROMPT)
    np.testing.assert_array_equal(await engine.logits(sequence), await engine.backend.logits(same))
    np.testing.assert_array_equal(await engine.last_logits(sequence, 3), await engine.backend.last_logits(same, 3))
    found = await engine.hidden(sequence, ["final_norm"], 4)
    expected = await engine.backend.hidden(same, ["final_norm"], 4)
    np.testing.assert_array_equal(found["final_norm"], expected["final_norm"])
    assert found["final_norm"].shape == (len(PROMPT) - 4, 64)


async def test_closing_early_loses_nothing_that_was_yielded(engine: Engine) -> None:
    whole = await answer(engine, PROMPT, 24)
    sequence, timings, got = engine.new_sequence(), Timings(), list[int]()
    await prefill(engine, sequence, PROMPT)
    async with aclosing(engine.generate(sequence, 24, GREEDY, timings)) as batches:  # type: ignore[type-var]
        async for ids in batches:
            got += ids
            if len(got) >= 8:
                break
    assert got == whole[:8]
    assert sequence.tokens == PROMPT + got
    assert timings.new_tokens == 8
    assert await generate(engine, sequence, 16) == whole[8:]


async def test_rates_count_what_was_run(engine: Engine) -> None:
    untouched = Timings()
    assert (untouched.prefill_tok_s, untouched.decode_tok_s, untouched.reason) == (0.0, 0.0, "")
    sequence, timings = engine.new_sequence(), Timings()
    await prefill(engine, sequence, PROMPT[:4])
    await engine.prefill(sequence, PROMPT, timings)
    await generate(engine, sequence, 8, timings)
    assert timings.prefill_tok_s * timings.prefill_seconds == pytest.approx(len(PROMPT) - 4)
    assert timings.decode_tok_s * timings.decode_seconds == pytest.approx(8)
    assert 0 < timings.first_token_seconds <= timings.decode_seconds


async def test_a_change_of_adapter_ends_what_is_under_way_and_keeps_the_tokens(
    tiny_path: Path, open_model: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    model = await open_model(tiny_path, context=CONTEXT, end_tokens=())
    engine, adapter = model.engine, tiny_adapters.drawn(model.graph, 1)
    plain, other = engine.new_sequence(), engine.new_sequence()
    await prefill(engine, plain, PROMPT)
    await prefill(engine, other, PROMPT)
    without = await generate(engine, plain, 16)
    number = await engine.add_adapter(adapter)
    engine.use_adapter(other, number)
    assert (other.tokens, other.stored) == (PROMPT, 0)
    with_it = await generate(engine, other, 16)
    assert with_it != without

    timings, got = Timings(), list[int]()
    await prefill(engine, plain, PROMPT)
    async with aclosing(engine.generate(plain, 60, GREEDY, timings)) as batches:  # type: ignore[type-var]
        async for ids in batches:
            got += ids
            engine.use_adapter(plain, 0)  # no change: nothing ends
            if len(got) == 8:
                engine.use_adapter(plain, number)
    assert (timings.reason, got) == ("stopped", without[:8])
    assert plain.tokens[: len(PROMPT) + 8] == PROMPT + without[:8]
    await prefill(engine, plain, PROMPT)
    assert await generate(engine, plain, 16) == with_it

    await prefill(engine, plain, PROMPT)
    timings, got = Timings(), []
    async with aclosing(engine.generate(plain, 60, GREEDY, timings)) as batches:  # type: ignore[type-var]
        async for ids in batches:
            if not got:
                removing = asyncio.create_task(engine.remove_adapter(number))
            got += ids
    await removing
    assert timings.reason == "stopped"
    assert got == with_it[: len(got)]
    assert (plain.adapter, other.adapter) == (0, 0)
    await prefill(engine, plain, PROMPT)
    assert await generate(engine, plain, 16) == without


async def test_a_measurement_in_a_pause_ends_for_a_person_and_is_repeated(
    tiny_path: Path, open_model: OpenModel
) -> None:
    engine = (await open_model(tiny_path, Tuned, context=CONTEXT, end_tokens=())).engine
    backend = engine.backend
    assert isinstance(backend, Tuned)
    backend.measures, backend.look = asyncio.Event(), asyncio.Event()
    with engine.idle_held():
        tuning = asyncio.ensure_future(engine.tune())
        await prefill(engine, engine.new_sequence(), PROMPT)
        assert not backend.began
    await backend.measures.wait()
    person = asyncio.ensure_future(prefill(engine, engine.new_sequence(), PROMPT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not person.done()
    backend.look.set()
    await person
    await tuning
    assert backend.began == 2
