"""Whatever happens, in whatever order, each conversation gives the tokens that it gives on numpy without a cache.
Tiny models."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from py_core.backend_errors import BackendError
from py_core.backends.pipelined import PipelinedBackend
from py_core.engine.engine import Engine, Timings
from py_core.engine.page_keeping import packed
from py_core.paging import page_table
from py_core.paging.page_table import PAGE
from py_core.paging.tiers import TierPolicy
from py_core.sampling import SamplingParams
from py_core.token_sequence import NO_SLOT, TokenSequence
from tests.backends.backend_pairs import Pair, alone, assert_said_alone, open_pair, prompt
from tests.backends.dying_host import DeviceGoes, WorkersDie
from tests.backends.test_together import RULES
from tests.models.architectures.variants import CONVOLUTIONS, DELTA_RULES, HEADS_DIFFER
from tests.paging.page_owners import assert_each_page_has_its_owners, assert_nothing_is_left
from tests.paging.test_page_transfer import Shelf
from tests.paging.test_sequence_slots import with_little_memory
from tests.speculation.test_speculation import Always, told_before
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama
from tests.tiny.models import Variant

CONTEXT = 4 * PAGE
SLOTS = 5
"""More than the rows that run at a time, as usual (32 and 8)."""
NOISE = 5e-4
"""Tolerance relative to the largest logit: the distance of the kernels from numpy, whose tokens are compared with
theirs at any temperature."""
HEAD = len(packed("", b""))
"""Bytes of a kept page before its contents."""
MOST = 8
"""Conversations that are open at a time: more than slots, and more than memory holds."""


@dataclass(frozen=True)
class Step:
    """`which` and `size` are its target and its amount."""

    what: str
    which: int
    size: int


class Conversations:
    """Texts, and the sequences that hold them."""

    def __init__(
        self, pair: Pair, host: WorkersDie | DeviceGoes, seen: Counter[str], noise: float, counts_pages: bool
    ) -> None:
        assert isinstance(pair.other, PipelinedBackend)
        self.numpy, self.backend, self.host, self.seen = pair.numpy, pair.other, host, seen
        self.engine, self.shelf = Engine(pair.other, ()), Shelf()
        self.engine.pages.model = "a model"
        # Tiny models may read their tokens faster than pages are taken: what pays has a test of its own.
        self.engine.pages.note_read = lambda tokens, seconds: None  # type: ignore[method-assign]
        self.beginnings = [prompt(140, seed=at) for at in range(2)]
        self.texts: dict[int, list[int]] = {}
        self.sequences: dict[int, TokenSequence] = {}
        self.noise, self.counts_pages = noise, counts_pages

    async def do(self, step: Step) -> None:
        if step.what == "opens" or not self.sequences:
            sequence = await self.opens(step)
        else:
            sequence = list(self.sequences.values())[step.which % len(self.sequences)]
            await getattr(self, step.what.replace(" ", "_"))(sequence, step)
        for number, one in self.sequences.items():
            assert one.tokens == self.texts[number]
        if self.counts_pages and not self.backend.recovery.is_lost:  # otherwise another table comes
            assert_each_page_has_its_owners(self.backend, SLOTS)
        if step.size % 4 == 0 and sequence.number in self.sequences:
            await self.assert_alike(sequence)

    async def opens(self, step: Step) -> TokenSequence:
        """Text that shares its beginning with others, or with none."""
        if len(self.sequences) == MOST:
            await self.is_freed(next(iter(self.sequences.values())), step)
        sequence = self.engine.new_sequence()
        self.sequences[sequence.number] = sequence
        self.texts[sequence.number] = []
        await self.reads(sequence, step)
        return sequence

    async def reads(self, sequence: TokenSequence, step: Step, shelf: Shelf | None = None) -> None:
        text = self.beginnings[step.which % 2][: step.size % 140] + prompt(step.size // 2 + 1, seed=step.which)
        await self.holds(sequence, text, shelf)

    async def goes_on(self, sequence: TokenSequence, step: Step) -> None:
        """Reads more."""
        text = (self.texts[sequence.number] + prompt(step.size, seed=step.which))[: CONTEXT - 1]
        await self.holds(sequence, text)

    async def branches(self, sequence: TokenSequence, step: Step) -> None:
        """Another conversation continues from the middle of this one's text."""
        text = self.texts[sequence.number]
        if len(self.sequences) < MOST:
            other = self.engine.new_sequence()
            self.sequences[other.number], self.texts[other.number] = other, []
        else:
            other = list(self.sequences.values())[step.size % MOST]
        text = text[: len(text) * step.size // 200] + prompt(step.which + 1, seed=step.size)
        await self.holds(other, text[: CONTEXT - 1])

    async def holds(self, sequence: TokenSequence, text: list[int], shelf: Shelf | None = None) -> None:
        await self.engine.prefill(sequence, text, timings := Timings(), shelf=shelf)
        self.seen["not read again"] += timings.reused_tokens
        self.texts[sequence.number] = text

    async def stops(self, sequence: TokenSequence, step: Step) -> None:
        """Reads, and truncates in the middle."""
        text = self.texts[sequence.number][: step.size] + prompt(100, seed=step.which)
        reading = asyncio.ensure_future(self.engine.prefill(sequence, text, Timings()))
        for _ in range(step.which):
            await asyncio.sleep(0)
        self.engine.truncate(sequence, min(step.size, len(sequence.tokens)))
        with contextlib.suppress(BackendError):  # that it was changed
            await reading
        self.texts[sequence.number] = list(sequence.tokens)
        assert text[: sequence.length] == sequence.tokens

    async def answers(self, sequence: TokenSequence, step: Step) -> None:
        if text := self.texts[sequence.number]:
            await self.compare(sequence, text, RULES[step.which % len(RULES)], await self.says(sequence, step))

    async def says(self, sequence: TokenSequence, step: Step) -> list[int]:
        rules = RULES[step.which % len(RULES)]
        steps = self.engine.generate(sequence, step.size % 12 + 1, rules, Timings())
        said = [token async for ids in steps for token in ids]
        self.texts[sequence.number] = self.texts[sequence.number] + said
        return said

    async def guesses(self, sequence: TokenSequence, step: Step) -> None:
        """Answers in passes of several rows: the continuation occurred before, except for some tokens."""
        if not (text := self.texts[sequence.number]):
            return
        rules, count = RULES[step.which % len(RULES)], min(step.size % 12 + 9, CONTEXT - len(text))
        told = await alone(self.numpy, text, count, rules, sequence.adapter)
        with pytest.MonkeyPatch.context() as patch:
            always = Always(self.backend, patch)
            sequence.guesses = told_before(text, told, 0.3, step.size)
            said = [token async for ids in self.backend.decode(sequence, count, rules) for token in ids]
        sequence.guesses = None
        self.texts[sequence.number] = text + said
        self.seen["guesses"] += always.asked
        assert len(said) == count
        await self.compare(sequence, text, rules, said)

    async def answers_beside_others(self, sequence: TokenSequence, step: Step) -> None:
        """Several answer in the same steps, or in turns if they have no room together."""
        rows = [one for one in self.sequences.values() if self.texts[one.number]][: step.size % (SLOTS - 1) + 1]
        before = [self.texts[one.number] for one in rows]
        steps = [Step("", step.which + at, step.size) for at in range(len(rows))]
        answers = await asyncio.gather(*(self.says(one, each) for one, each in zip(rows, steps, strict=True)))
        for one, text, each, said in zip(rows, before, steps, answers, strict=True):
            assert len(said) == min(step.size % 12 + 1, CONTEXT - len(text))
            await self.compare(one, text, RULES[each.which % len(RULES)], said)

    async def compare(self, sequence: TokenSequence, text: list[int], rules: SamplingParams, said: list[int]) -> None:
        rounded = await assert_said_alone(self.numpy, text, rules, said, self.noise, sequence.adapter)
        self.seen.update({"answers": 1, "tokens": len(said), "decided by rounding": rounded})

    async def goes_back(self, sequence: TokenSequence, step: Step) -> None:
        self.engine.truncate(sequence, step.size)
        self.texts[sequence.number] = self.texts[sequence.number][: step.size]

    async def is_freed(self, sequence: TokenSequence, step: Step) -> None:
        del self.sequences[sequence.number], self.texts[sequence.number]
        self.engine.free(sequence)

    async def is_sent_away(self, sequence: TokenSequence, step: Step) -> None:
        if sequence.slot != NO_SLOT:
            self.backend.pages.send_away(sequence)

    async def is_kept(self, sequence: TokenSequence, step: Step) -> None:
        """Pages leave the backend."""
        for one in self.sequences.values():
            self.seen["kept"] += await self.engine.pages.keep(one, self.shelf)

    async def is_brought(self, sequence: TokenSequence, step: Step) -> None:
        """Memory no longer holds it; its pages come back from the shelf."""
        self.seen["kept"] += await self.engine.pages.keep(sequence, self.shelf)
        if sequence.slot != NO_SLOT:
            self.backend.pages.send_away(sequence)
        while self.backend.pages.let_go():
            pass
        await self.holds(sequence, [*self.texts[sequence.number][: CONTEXT - 2], step.which], self.shelf)

    async def is_damaged(self, sequence: TokenSequence, step: Step) -> None:
        """A kept page is damaged, all of it or only its contents: a single byte would not show in logits."""
        if kept := list(self.shelf.kept):
            name = kept[step.which % len(kept)]
            data, begin = self.shelf.kept[name], 0 if step.size % 2 else HEAD
            self.shelf.kept[name] = data[:begin] + bytes(255 - byte for byte in data[begin:])

    async def lets_go(self, sequence: TokenSequence, step: Step) -> None:
        """Drops unused pages."""
        for _ in range(step.which):
            self.backend.pages.let_go()

    async def has_another_budget(self, sequence: TokenSequence, step: Step) -> None:
        """The pool grows, or its contents move to its beginning."""
        use = self.backend.memory()
        await self.engine.limit_memory(None if step.which % 4 == 0 else use.total - step.which % 4 * use.total // 40)

    async def uses_an_adapter(self, sequence: TokenSequence, step: Step) -> None:
        """Or none. Its text runs again."""
        self.engine.use_adapter(sequence, step.which % (len(self.numpy._adapters) + 1))

    async def is_lost(self, sequence: TokenSequence, step: Step) -> None:
        """Soon workers die, or the device is lost."""
        self.host.lose(step.size % 12 + 1)

    async def assert_alike(self, sequence: TokenSequence) -> None:
        if not sequence.length:
            return
        reference = self.numpy.new_sequence()
        self.numpy.use_adapter(reference, sequence.adapter)
        await self.numpy.prefill(reference, self.texts[sequence.number])
        expected, got = await self.numpy.logits(reference), await self.engine.logits(sequence)
        self.numpy.free(reference)
        assert np.abs(got - expected).max() <= 4 * self.noise * np.abs(expected).max()

    async def end(self) -> None:
        for sequence in self.sequences.values():
            await self.assert_alike(sequence)
        for sequence in self.sequences.values():
            self.engine.free(sequence)
        if self.counts_pages:
            assert_nothing_is_left(self.backend, SLOTS)
        self.seen["lost"] += self.host.lost


NAMES = [
    "opens", "opens", "branches", "reads", "goes on", "stops", "answers", "answers", "guesses", "answers beside others",
    "goes back", "is freed", "is sent away", "is kept", "is kept", "is brought", "is brought", "is damaged", "lets go",
    "has another budget", "is lost",
]  # fmt: skip
STEPS = st.builds(Step, st.sampled_from(NAMES), st.integers(0, 11), st.integers(1, 200))
EACH = [
    Step("opens", 0, 120), Step("opens", 1, 138), Step("branches", 0, 150), Step("is kept", 0, 1),
    Step("is brought", 1, 4), Step("guesses", 0, 11), Step("has another budget", 0, 1), Step("opens", 2, 139),
    Step("opens", 5, 130), Step("reads", 1, 99), Step("answers beside others", 0, 8), Step("is lost", 0, 1),
    Step("answers", 1, 12), Step("is kept", 0, 1), Step("is damaged", 1, 2), Step("is brought", 0, 4),
    Step("has another budget", 3, 4), Step("goes on", 2, 200), Step("stops", 3, 70), Step("lets go", 1, 1),
    Step("is sent away", 1, 1), Step("goes back", 3, 100), Step("is freed", 1, 1), Step("answers", 0, 8),
]  # fmt: skip
"""Each kind of step, so that none is missing by chance."""


@contextlib.contextmanager
def counted(backend: PipelinedBackend, seen: Counter[str]) -> Iterator[None]:
    """The number of times that pages came back, and that sequences lost their slot because others needed room."""
    send_away, import_pages = backend.pages.send_away, backend.import_pages

    def sent(sequence: TokenSequence) -> None:
        seen["sent away"] += 1
        send_away(sequence)

    async def brought(sequence: TokenSequence, tokens, pages) -> bool:
        done = await import_pages(sequence, tokens, pages)
        seen["brought"] += len(pages) if done else 0
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.pages, "send_away", sent)
        patch.setattr(backend, "import_pages", brought)
        yield


MODELS: dict[str, TinyLlama | Variant] = {
    "llama": TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT),
    "convolutions": CONVOLUTIONS.changed(max_position_embeddings=CONTEXT),
    "heads differ": HEADS_DIFFER.changed(max_position_embeddings=CONTEXT),
    "delta rules": DELTA_RULES.changed(max_position_embeddings=CONTEXT),
}


@pytest.fixture(scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = getattr(request, "param", "llama")
    return MODELS[name].write(tmp_path_factory.mktemp(name.replace(" ", "-")) / "tiny.gguf")


async def play(
    kind: str,
    path: Path,
    kernel: Path,
    steps: list[Step],
    seen: Counter[str],
    adapters: int = 0,
    counts_pages: bool = True,
    tiers: TierPolicy | None = None,
    noise: float = NOISE,
) -> None:
    """With memory for two whole conversations, unless the budget differs. kernel: that of WASM. counts_pages: see
    `assert_each_page_has_its_owners`."""
    host = DeviceGoes() if kind == "webgpu" else WorkersDie(kernel)
    pair = await open_pair(path, host, tiers=tiers)
    conversations = Conversations(pair, host, seen, noise, counts_pages)
    for seed in range(adapters):
        for one in (conversations.engine, pair.numpy):
            await one.add_adapter(drawn(pair.numpy.graph, seed))
    backend = await with_little_memory(pair, CONTEXT)
    backend.pages.slots.free = backend.pages.slots.free[-SLOTS:]
    # Whichever is faster here, as many as possible share steps.
    backend.rows_that_pay = pair.numpy.rows_that_pay  # type: ignore[method-assign]
    try:
        with counted(backend, seen):
            async with asyncio.timeout(500):
                for step in steps:
                    await conversations.do(step)
                await conversations.end()
    finally:
        backend.close()


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("kind", "path", "examples"),
    [
        ("wasm", "llama", 2),
        ("wasm", "convolutions", 2),
        ("wasm", "delta rules", 2),
        ("wasm", "heads differ", 1),
        pytest.param("wasm", "llama", 20, marks=pytest.mark.all),
        pytest.param("wasm", "convolutions", 20, marks=pytest.mark.all),
        pytest.param("wasm", "delta rules", 20, marks=pytest.mark.all),
        pytest.param("wasm", "heads differ", 20, marks=pytest.mark.all),
        ("webgpu", "llama", 3),
        ("webgpu", "convolutions", 3),
        ("webgpu", "delta rules", 3),
        pytest.param("webgpu", "heads differ", 3, marks=pytest.mark.all),
    ],
    indirect=["path"],
)
def test_whatever_happens_in_whatever_order_each_says_what_it_says_without_a_cache(
    kind: str, examples: int, path: Path, kernel_wasm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    seen = Counter[str]()

    @settings(max_examples=examples)
    @given(st.lists(STEPS, min_size=20, max_size=35))
    @example(EACH)
    def whatever_happens(steps: list[Step]) -> None:
        asyncio.run(play(kind, path, kernel_wasm(), steps, seen))

    whatever_happens()
    has_states = path.parent.name.startswith("delta")  # its pages stay
    moved = () if has_states else ("kept", "brought")
    assert all(seen[what] for what in ("not read again", "guesses", *moved, "sent away", "lost"))
