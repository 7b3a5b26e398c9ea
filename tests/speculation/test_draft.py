"""A draft model's guesses change no token: whatever they are, whichever model fails, and whatever else is answered.
Tiny models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.protocols import Backend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.draft import READ_AT_ONCE, Draft
from py_core.engine.engine import Engine, Timings
from py_core.sampling import SamplingParams
from py_core.speculation.lookahead import DRAFT, Drafted, GuessPlan
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, open_pair, prompt
from tests.backends.dying_host import DyingHost
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT, TOKENS, TEXT = 400, 60, prompt(90, 1)
SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=5),
    "penalties": SamplingParams(temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.2, seed=7),
}


def tiny(seed: int = 0, form: str = "F32", context: int = CONTEXT) -> TinyLlama:
    return TinyLlama(formats=(form,), embedding_format="F32", tied=False, context=context, seed=seed)


DRAFTS = {"right": tiny(), "sometimes": tiny(form="Q4_0"), "wrong": tiny(seed=9)}


class Models:
    """Opens models on hosts of their own, and closes them."""

    def __init__(self, folder: Path, kernels: Path) -> None:
        self._folder, self._kernels, self._open = folder, kernels, list[Backend]()

    async def open(self, model: TinyLlama, where: str = "wasm", host: WasmtimeHost | None = None) -> PipelinedBackend:
        path = model.write(self._folder / f"{len(self._open)}.gguf")
        pair = await open_pair(path, host or (WgpuHost() if where == "webgpu" else WasmtimeHost(self._kernels)))
        assert isinstance(pair.other, PipelinedBackend)
        self._open.append(pair.other)
        return pair.other

    async def numpy(self, model: TinyLlama) -> Backend:
        pair = await open_pair(model.write(self._folder / "numpy.gguf"), WasmtimeHost(self._kernels))
        pair.other.close()
        return pair.numpy

    def close(self) -> None:
        for backend in self._open:
            backend.close()


@pytest.fixture
def models(tmp_path: Path, kernel_wasm) -> Iterator[Models]:
    opened = Models(tmp_path, kernel_wasm())
    yield opened
    opened.close()


@pytest.fixture(params=["webgpu", "wasm"])
async def engine(request: pytest.FixtureRequest, models: Models) -> Engine:
    return Engine(await models.open(tiny(), request.param), ())


class Asked:
    """Makes a backend ask its draft for every pass, with the most rows; `times` counts the calls."""

    def __init__(self, backend: Backend, patch: pytest.MonkeyPatch) -> None:
        assert isinstance(backend, PipelinedBackend)
        self.times = 0
        backend.decoder.times.seconds[1] = 1.0e-3
        patch.setattr(backend.decoder.lookahead, "plan", self._plan)

    def _plan(self, match: int, unread: int | None, step: float, left: int, most: int) -> GuessPlan | None:
        rows = 8 if most >= 8 else 4 if most >= 4 else 2
        if unread is None or most < rows:
            return None
        self.times += 1
        return GuessPlan(DRAFT, rows)


async def answer(
    engine: Engine, text: list[int] = TEXT, n: int = TOKENS, sampling: SamplingParams = GREEDY, adapter: int = 0
) -> list[int]:
    sequence = engine.new_sequence()
    engine.use_adapter(sequence, adapter)
    await engine.prefill(sequence, text, Timings())
    told = await more(engine, sequence, n, sampling)
    engine.free(sequence)
    return told


async def more(engine: Engine, sequence: TokenSequence, n: int, sampling: SamplingParams = GREEDY) -> list[int]:
    return [one async for ids in engine.generate(sequence, n, sampling, Timings()) for one in ids]


async def with_draft(engine: Engine, models: Models, draft: TinyLlama = DRAFTS["right"]) -> Draft:
    engine.draft = Draft(await models.open(draft, engine.capabilities.backend))
    return engine.draft


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [
        pytest.param(
            kind, sampling, id=f"{kind}-{name}",
            marks=[pytest.mark.every_backend] if (kind, name) == ("sometimes", "penalties") else [],
        )
        for kind in DRAFTS
        for name, sampling in SAMPLINGS.items()
    ],
)  # fmt: skip
async def test_the_tokens_are_those_without_a_draft(
    engine: Engine, models: Models, kind: str, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await answer(engine, sampling=sampling)
    draft, asked = await with_draft(engine, models, DRAFTS[kind]), Asked(engine.backend, monkeypatch)
    assert await answer(engine, sampling=sampling) == told
    assert draft.passes > 0
    if kind == "right":
        assert draft.right == draft.guessed
        assert asked.times < TOKENS / 6
    else:
        assert draft.right < draft.guessed
    if kind == "sometimes":
        assert draft.right > 0


async def test_a_draft_on_numpy_will_do(engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    told = await answer(engine)
    engine.draft = Draft(await models.numpy(DRAFTS["right"]))
    Asked(engine.backend, monkeypatch)
    assert await answer(engine) == told
    assert engine.draft.right == engine.draft.guessed > 0


@pytest.mark.parametrize("context", [CONTEXT, 200])
async def test_the_context_is_filled_to_its_end_also_where_the_drafts_is_shorter(
    engine: Engine, models: Models, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await answer(engine, n=CONTEXT)
    assert len(told) == CONTEXT - len(TEXT)
    draft = await with_draft(engine, models, tiny(context=context))
    Asked(engine.backend, monkeypatch)
    assert await answer(engine, n=CONTEXT) == told
    assert draft.passes > 0


async def test_adapters_are_those_of_the_sequence(
    engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await engine.add_adapter(drawn(engine.backend.graph, 3))  # type: ignore[attr-defined]
    plain, told = await answer(engine), await answer(engine, adapter=number)
    assert told != plain
    draft = await with_draft(engine, models)
    Asked(engine.backend, monkeypatch)
    assert await answer(engine, adapter=number) == told
    assert 0 < draft.right < draft.guessed, "the draft has no adapter"


async def test_answers_at_once_are_those_alone(engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [prompt(70 + 20 * seed, seed) for seed in range(3)]
    alone = [await answer(engine, text) for text in texts]
    draft = await with_draft(engine, models, DRAFTS["sometimes"])
    Asked(engine.backend, monkeypatch)

    async def later(at: int) -> list[int]:
        for _ in range(20 * at):  # while the others are being answered
            await asyncio.sleep(0)
        return await answer(engine, texts[at], n=TOKENS)

    assert await asyncio.gather(*map(later, range(3))) == alone
    assert await answer(engine, texts[0]) == alone[0]
    assert draft.passes > 0


async def test_an_answer_that_ends_in_the_middle_of_a_pass_keeps_nothing_behind_its_end(
    engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await answer(engine)
    end = next(at for at in range(9, TOKENS) if told[at] not in told[:at])
    stopping = Engine(engine.backend, {told[end]})
    await with_draft(stopping, models)
    Asked(engine.backend, monkeypatch)
    sequence = stopping.new_sequence()
    await stopping.prefill(sequence, TEXT, Timings())
    assert await more(stopping, sequence, TOKENS) == told[:end]
    assert sequence.tokens == [*TEXT, *told[: end + 1]]


async def test_a_draft_follows_a_conversation_that_is_taken_back_and_goes_on_otherwise(
    engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [*TEXT[:50], *prompt(30, 8)]
    told = [await answer(engine, text) for text in (TEXT, other)]
    draft = await with_draft(engine, models)
    Asked(engine.backend, monkeypatch)
    sequence = engine.new_sequence()
    for text, expected in ((TEXT, told[0]), (other, told[1]), (TEXT, told[0])):
        await engine.prefill(sequence, text, Timings())
        assert await more(engine, sequence, TOKENS) == expected
    assert draft.right == draft.guessed


async def test_a_long_text_is_read_in_pieces_while_the_answer_goes_on(
    engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = prompt(2 * READ_AT_ONCE + 40, 3)
    told = await answer(engine, text)
    draft, asked = await with_draft(engine, models), Asked(engine.backend, monkeypatch)
    assert await answer(engine, text) == told
    assert asked.times - draft.passes == 2, "two pieces without a guess behind them"
    assert draft.right == draft.guessed > 0


async def test_who_measures_gets_no_draft(engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, asked = await with_draft(engine, models), Asked(engine.backend, monkeypatch)
    sequence = engine.new_sequence(shares=False)
    await engine.prefill(sequence, TEXT, Timings())
    await more(engine, sequence, 20)
    engine.speculates = False
    await answer(engine, n=20)
    assert (asked.times, draft.passes) == (0, 0)


async def test_what_a_draft_holds_is_counted_freed_and_closed_with_the_engine(
    engine: Engine, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = await with_draft(engine, models)
    Asked(engine.backend, monkeypatch)
    use = engine.memory()
    assert use.draft == draft.backend.memory().total > 0
    assert use.total == engine.backend.memory().total + use.draft
    assert ("draft", "", use.draft) in list(use.rows())
    sequences = [engine.new_sequence() for _ in range(3)]
    for sequence in sequences:
        await engine.prefill(sequence, TEXT, Timings())
        await more(engine, sequence, 10)
        await more(engine, sequence, 10)  # the same sequence of the draft follows all its answers
    assert len(draft.backend.pages.sequences) == 3  # type: ignore[attr-defined]
    for sequence in sequences:
        engine.free(sequence)
    assert not draft.backend.pages.sequences  # type: ignore[attr-defined]
    closed: list[Backend] = []
    for backend in (engine.backend, draft.backend):
        monkeypatch.setattr(backend, "close", lambda backend=backend: closed.append(backend))
    engine.close()
    monkeypatch.undo()
    assert closed == [engine.backend, draft.backend]


@pytest.mark.parametrize("whose", ["model", "draft", "both"])
async def test_workers_that_die_cost_time_only(
    models: Models, kernel_wasm, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {name: DyingHost(kernel_wasm()) for name in ("model", "draft")}
    engine = Engine(await models.open(tiny(), host=hosts["model"]), ())
    told = await answer(engine)
    engine.draft = Draft(await models.open(DRAFTS["right"], host=hosts["draft"]))
    Asked(engine.backend, monkeypatch)
    for name, host in hosts.items():
        host.dies, host.runs = (3 if whose in (name, "both") else 0), 0
    assert await answer(engine) == told
    assert engine.draft.right == engine.draft.guessed > 0
    assert hosts["draft"].runs > 9


async def test_a_draft_whose_workers_always_die_guesses_no_more_in_this_answer(
    models: Models, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = DyingHost(kernel_wasm())
    engine = Engine(await models.open(tiny()), ())
    told = await answer(engine)
    engine.draft, asked = Draft(await models.open(DRAFTS["right"], host=host)), Asked(engine.backend, monkeypatch)
    host.dies = 1
    assert await answer(engine) == told
    assert (asked.times, engine.draft.passes) == (1, 0)
    host.dies = 0
    assert await answer(engine) == told
    assert engine.draft.right == engine.draft.guessed > 0, "the next answer asks it again"


@pytest.mark.all
@pytest.mark.parametrize("whose", ["model", "draft"])
async def test_a_device_that_is_lost_costs_time_only(
    models: Models, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(await models.open(tiny(), "webgpu"), ())
    told = await answer(engine)
    draft = await with_draft(engine, models)
    Asked(engine.backend, monkeypatch)
    lost = engine.backend if whose == "model" else draft.backend
    sequence, got = engine.new_sequence(), list[int]()
    await engine.prefill(sequence, TEXT, Timings())
    async for ids in engine.generate(sequence, TOKENS, GREEDY, Timings()):
        if len(got) < 20 <= len(got) + len(ids):
            lost.device.host._device.destroy()  # type: ignore[attr-defined]
        got += ids
    assert got == told
    assert draft.right == draft.guessed > 0


class Scripted:
    """A draft that gets the number of its right guesses, of the given rows, pass by pass, and then again."""

    def __init__(self, told: list[int], start: int, script: Sequence[tuple[int, int]]) -> None:
        self._told, self._start, self._script, self._at = told, start, script, 0

    @property
    def rows(self) -> int:
        return self._script[self._at % len(self._script)][0]

    def unread(self, tokens: Sequence[int]) -> int | None:
        return 0

    async def propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        right = self._script[self._at % len(self._script)][1]
        self._at += 1
        coming = self._told[len(tokens) - self._start :][:count]
        return Drafted([one if at < right else (one + 1) % 64 for at, one in enumerate(coming)])

    def judge(self, guessed: int, right: int) -> None:
        pass


@pytest.fixture
async def told_by(models: Models) -> tuple[PipelinedBackend, dict[str, list[int]]]:
    """A model and its tokens without a draft, by the rules of sampling."""
    engine = Engine(await models.open(tiny()), ())
    return await models.open(tiny()), {name: await answer(engine, sampling=one) for name, one in SAMPLINGS.items()}


SCRIPTS = st.lists(st.tuples(st.integers(2, 8), st.integers(0, 7)), min_size=1, max_size=12)


@pytest.mark.parametrize("examples", [10, pytest.param(100, marks=pytest.mark.all)])
def test_whatever_is_right_the_tokens_are_the_same(
    told_by: tuple[PipelinedBackend, dict[str, list[int]]], examples: int
) -> None:
    backend, told = told_by

    async def decodes(script: list[tuple[int, int]], name: str, most: int) -> None:
        sequence = backend.new_sequence()
        await backend.prefill(sequence, TEXT)
        draft = sequence.draft = Scripted(told[name], len(TEXT), script)
        backend.decoder.times.seconds[1] = 1.0e-3
        backend.decoder.lookahead.plan = lambda match, unread, step, left, most: (  # type: ignore[method-assign]
            GuessPlan(DRAFT, draft.rows) if draft.rows <= most else None
        )
        got = [one async for ids in backend.decode(sequence, most, SAMPLINGS[name]) for one in ids]
        assert got == told[name][:most]
        assert sequence.tokens == [*TEXT, *got]
        backend.free(sequence)

    @settings(max_examples=examples)
    @given(script=SCRIPTS, name=st.sampled_from(list(SAMPLINGS)), most=st.integers(1, TOKENS))
    def whatever_is_right(script: list[tuple[int, int]], name: str, most: int) -> None:
        asyncio.run(decodes(script, name, most))

    whatever_is_right()
