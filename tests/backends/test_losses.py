"""Workers die, or the device is lost, in the middle of any work: that costs time, nothing else.

Each test runs once undisturbed, then repeatedly with the loss in a different call of the host. Tiny models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from py_core.backend_errors import BackendError
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.step_times import StepTimes
from py_core.engine.engine import Engine, Timings
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, alone, assert_said_alone, open_pair, prompt
from tests.backends.dying_host import DeviceGoes, WorkersDie
from tests.backends.test_interleavings import NOISE
from tests.backends.test_together import RULES
from tests.paging.page_owners import assert_each_page_has_its_owners, assert_nothing_is_left
from tests.paging.test_page_transfer import Shelf
from tests.paging.test_sequence_slots import with_little_memory
from tests.speculation.test_speculation import Always, told_before
from tests.tiny.llama import TinyLlama

CONTEXT = 6 * PAGE
PLACES = {"workers": 4, "workers in more places": 16, "device": 3}
"""Losses per test: a device takes longer to come back."""


class Losing:
    """A model whose host can be told when to lose what it runs."""

    def __init__(self, kind: str, pair: Pair, host: WorkersDie | DeviceGoes) -> None:
        assert isinstance(pair.other, PipelinedBackend)
        self.pair, self.numpy, self.backend, self.host = pair, pair.numpy, pair.other, host
        self.places, self.calls = PLACES[kind], 0
        self._known: dict[tuple[int, ...], list[int]] = {}
        self.engine = Engine(pair.other, ())
        self.engine.pages.model = "a model"
        # Tiny models may read their tokens faster than pages are taken: what pays has a test of its own.
        self.engine.pages.note_read = lambda tokens, seconds: None  # type: ignore[method-assign]

    async def everywhere(self, act: Callable[[], Awaitable[None]], prepare: Callable[[], Awaitable[None]]) -> None:
        """`prepare`, then `act` with a loss in its middle; before and after it nothing is held."""
        await prepare()
        self.host.lose(0)
        self.calls = 0
        await act()
        calls, lost = self.calls or self.host.calls, self.host.lost
        await self.end()
        for place in range(self.places):
            await prepare()
            self.host.lose(1 + place * calls // self.places)
            await act()
            self.host.lose(0)
            assert_each_page_has_its_owners(self.backend)
            await self.end()
        # The number of steps in a submission depends on their time: the last ones may not occur.
        assert self.host.lost - lost > 0.6 * self.places

    def undisturbed(self) -> None:
        """Later calls are not lost: only the calls before this point count."""
        self.calls = self.host.calls
        self.host.lose(0)

    async def end(self) -> None:
        for sequence in list(self.backend.pages.sequences.values()):
            self.engine.free(sequence)
        assert_nothing_is_left(self.backend)

    async def read(self, text: list[int], shelf: Shelf | None = None) -> TokenSequence:
        sequence = self.engine.new_sequence()
        await self.engine.prefill(sequence, text, Timings(), shelf=shelf)
        return sequence

    async def says(self, sequence: TokenSequence, count: int, rules: SamplingParams = GREEDY) -> None:
        """The continuation of the sequence's tokens according to numpy."""
        before = list(sequence.tokens)
        said = [token async for ids in self.engine.generate(sequence, count, rules, Timings()) for token in ids]
        assert len(said) == count
        assert sequence.tokens == before + said
        await self.assert_right(before, said, rules)

    async def assert_right(self, before: list[int], said: list[int], rules: SamplingParams) -> None:
        """Asserts that the answer to these tokens, which have no earlier tokens with other rules, equals numpy's."""
        if self._known.get(tuple(before)) != said:
            await assert_said_alone(self.numpy, before, rules, said, NOISE)
            self._known[tuple(before)] = said


@pytest.fixture(params=["workers", "device", pytest.param("workers in more places", marks=pytest.mark.all)])
async def losing(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Losing]:
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    # The same number of calls each time, however long a step takes.
    monkeypatch.setattr(StepTimes, "batch", lambda self, rows, seconds: 2)
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    host = DeviceGoes() if request.param == "device" else WorkersDie(kernel_wasm())
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host)
    yield Losing(request.param, pair, host)
    pair.other.close()


async def nothing() -> None: ...


@pytest.mark.every_backend
async def test_while_pages_come_back(losing: Losing) -> None:
    text, shelf = prompt(3 * PAGE + 9, seed=1), Shelf()
    await losing.engine.pages.keep(await losing.read(text), shelf)
    assert len(shelf.kept) == 3
    await losing.end()

    async def act() -> None:
        sequence = await losing.read(text, shelf)
        losing.undisturbed()
        await losing.says(sequence, 4)

    await losing.everywhere(act, nothing)
    assert len(shelf.kept) == 3


async def test_while_pages_come_back_to_who_holds_a_part_that_others_hold_too(losing: Losing) -> None:
    text, shelf = prompt(3 * PAGE + 9, seed=1), Shelf()
    await losing.engine.pages.keep(await losing.read(text), shelf)
    await losing.end()

    async def prepare() -> None:
        await losing.read(text[: PAGE + 30])

    async def act() -> None:
        first, second = losing.backend.pages.sequences.values(), losing.engine.new_sequence()
        await losing.engine.prefill(second, text, Timings(), shelf=shelf)
        losing.undisturbed()
        for one in (second, *first):
            await losing.says(one, 4)

    await losing.everywhere(act, prepare)


async def test_while_pages_leave(losing: Losing) -> None:
    text = prompt(3 * PAGE + 9, seed=1)
    undisturbed = Shelf()
    await losing.engine.pages.keep(await losing.read(text), undisturbed)
    await losing.end()

    async def prepare() -> None:
        await losing.read(text)

    async def act() -> None:
        (sequence,), shelf = losing.backend.pages.sequences.values(), Shelf()
        kept = await losing.engine.pages.keep(sequence, shelf)
        losing.undisturbed()
        assert list(shelf.kept) == list(undisturbed.kept)[:kept], "those before the loss"
        await losing.says(sequence, 4)
        assert await losing.engine.pages.keep(sequence, shelf) == 3 - kept
        await losing.end()  # so the pages come from the shelf
        again = await losing.read([*text, 1], shelf)
        await losing.says(again, 4)

    await losing.everywhere(act, prepare)


@pytest.mark.every_backend
async def test_pages_come_back_right_after_a_loss_that_nobody_made_up_for_yet(losing: Losing) -> None:
    text, shelf = prompt(3 * PAGE + 9, seed=1), Shelf()
    await losing.engine.pages.keep(await losing.read(text), shelf)
    await losing.end()
    sequence = await losing.read(prompt(PAGE + 9, seed=2))
    losing.host.lose(1)
    assert not await losing.engine.pages.keep(sequence, Shelf())
    await losing.says(await losing.read(text, shelf), 4)


@pytest.mark.every_backend
@pytest.mark.parametrize("losing", ["device"], indirect=True)
async def test_who_is_told_to_stop_while_the_device_is_made_anew_has_no_pages_there(
    losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = prompt(2 * PAGE + 9, seed=1)
    sequence, load = await losing.read(text), losing.backend.device.load

    async def told_to_stop(progress: None) -> None:
        await load(progress)
        losing.engine.truncate(sequence, PAGE + 9)

    monkeypatch.setattr(losing.backend.device, "load", told_to_stop)
    losing.host.lose(1)
    with pytest.raises(BackendError, match="changed"):
        await losing.engine.prefill(sequence, [*text, 1], Timings())
    monkeypatch.setattr(losing.backend.device, "load", load)
    await losing.says(sequence, 4)


async def test_while_who_waits_gives_his_pages_up_and_reads_them_again(losing: Losing) -> None:
    await with_little_memory(losing.pair)
    texts = [prompt(200 + 20 * at, seed=at) for at in range(3)]

    async def prepare() -> None:
        for text in texts:
            await losing.read(text)

    async def act() -> None:
        for one in list(losing.backend.pages.sequences.values()):
            await losing.says(one, 4, RULES[one.number % len(RULES)])

    await losing.everywhere(act, prepare)


async def test_while_a_smaller_pool_moves_what_it_holds(losing: Losing) -> None:
    texts = [prompt(3 * PAGE - 9 * at, seed=at) for at in range(4)]

    async def prepare() -> None:
        await losing.engine.limit_memory(None)
        for text in texts:
            await losing.read(text)

    async def act() -> None:
        await losing.engine.limit_memory(1)
        losing.undisturbed()
        assert losing.backend.pages.table is not None
        assert losing.backend.pages.table.most == CONTEXT // PAGE
        for one in list(losing.backend.pages.sequences.values()):
            await losing.says(one, 2)

    await losing.everywhere(act, prepare)


async def test_while_what_was_guessed_is_run(losing: Losing, monkeypatch: pytest.MonkeyPatch) -> None:
    text, rules = prompt(3 * PAGE - 4, seed=1), RULES[3]
    told = await alone(losing.numpy, text, 24, rules)
    always = Always(losing.backend, monkeypatch)

    async def prepare() -> None:
        # Without a token its time would be unknown, and nothing is guessed.
        losing.backend.decoder.times.seconds[1] = 1e-3
        await losing.read(text)

    async def act() -> None:
        (sequence,) = losing.backend.pages.sequences.values()
        sequence.guesses = told_before(text, told, 0.2)
        said = [token async for ids in losing.backend.decode(sequence, 24, rules) for token in ids]
        await losing.assert_right(text, said, rules)
        assert sequence.tokens == text + said

    await losing.everywhere(act, prepare)
    assert always.asked > losing.places


@pytest.mark.parametrize("memory", ["enough", pytest.param("little", marks=pytest.mark.every_backend)])
async def test_while_several_answer_in_the_same_steps(losing: Losing, memory: str) -> None:
    losing.backend.rows_that_pay = losing.numpy.rows_that_pay  # type: ignore[method-assign]
    if memory == "little":
        await with_little_memory(losing.pair)
    texts = [prompt(2 * PAGE - 4 - at, seed=at) for at in range(5)]

    async def prepare() -> None:
        for text in texts:
            await losing.read(text)

    async def act() -> None:
        await asyncio.gather(
            *(losing.says(one, 9, RULES[at]) for at, one in enumerate(losing.backend.pages.sequences.values()))
        )

    await losing.everywhere(act, prepare)


async def test_pages_that_never_arrive_are_read_and_nobody_hears_of_it(losing: Losing) -> None:
    """However often in a row: neither taking nor keeping pages counts losses."""
    text, shelf = prompt(2 * PAGE + 9, seed=1), Shelf()
    sequence = await losing.read(text)
    await losing.engine.pages.keep(sequence, shelf)
    pages = [await losing.backend.export_page(0, text[: PAGE * (at + 1)]) for at in range(2)]
    assert None not in pages
    for _ in range(6):
        losing.host.lose(1)
        other = losing.engine.new_sequence()
        assert not await losing.backend.import_pages(other, text[: 2 * PAGE], [page or b"" for page in pages])
        losing.engine.free(other)
    for _ in range(6):
        losing.host.lose(1)
        assert await losing.backend.export_page(0, text[:PAGE]) is None
    losing.host.lose(0)
    await losing.says(sequence, 4)
    await losing.end()
