"""Pages that left the backend and came back give the same tokens; damaged ones are read again. Tiny models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.engine.page_keeping import AT_ONCE, page_names
from py_core.paging.page_table import PAGE
from tests.backends.backend_pairs import GREEDY, open_pair, prompt
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 14 * PAGE


class Shelf:
    """Keeps pages in a dict, up to its room."""

    def __init__(self, room: int = 1000) -> None:
        self.kept: dict[str, bytes] = {}
        self.room = room

    async def names(self) -> Collection[str]:
        return self.kept

    async def read(self, names: Sequence[str]) -> list[bytes]:
        return [self.kept[name] for name in names]

    async def drop(self, names: Sequence[str]) -> None:
        for name in names:
            del self.kept[name]

    async def write(self, name: str, data: bytes) -> bool:
        if len(self.kept) < self.room:
            self.kept[name] = data
        return name in self.kept


class Tiny:
    """Engines of one model, each on its own backend: they share no computed pages."""

    def __init__(self, path: Path, kind: str, kernel_wasm, precision: str) -> None:
        self.path, self.kind, self.kernel_wasm, self.precision = path, kind, kernel_wasm, precision
        self.open: list[Engine] = []

    async def engine(self, precision: str | None = None) -> Engine:
        host = WgpuHost() if self.kind == "webgpu" else WasmtimeHost(self.kernel_wasm())
        options = {"precision": precision or self.precision} if self.kind == "wasm" else {}
        self.pair = await open_pair(self.path, host, **options)
        engine = Engine(self.pair.other, ())
        engine.pages.model = "a model"
        # Tiny models may read their tokens faster than pages are taken: what pays has a test of its own.
        engine.pages.note_read = lambda tokens, seconds: None  # type: ignore[method-assign]
        self.open.append(engine)
        return engine


@pytest.fixture(params=["webgpu", "wasm precise", "wasm fast"])
async def tiny(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Tiny]:
    kind, _, precision = request.param.partition(" ")
    model = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    tiny = Tiny(model.write(tmp_path / "tiny.gguf"), kind, kernel_wasm, precision)
    yield tiny
    for engine in tiny.open:
        engine.close()


async def answer(
    engine: Engine, text: list[int], shelf: Shelf | None, keep: bool = True
) -> tuple[list[int], int, np.ndarray]:
    """The tokens that follow, the number of tokens of the text that were not read, and the logits behind it."""
    sequence, timings = engine.new_sequence(), Timings()
    await engine.prefill(sequence, text, timings, shelf=shelf)
    logits = await engine.logits(sequence)
    said = [token async for ids in engine.generate(sequence, 70, GREEDY, timings) for token in ids]
    if shelf is not None and keep:
        await engine.pages.keep(sequence, shelf)
    engine.free(sequence)
    return said, timings.reused_tokens, logits


@pytest.mark.every_backend
async def test_what_was_kept_is_not_read_again_and_the_tokens_are_the_same(tiny: Tiny) -> None:
    text, shelf = prompt(10 * PAGE + 5, seed=1), Shelf()
    said, reused, _ = await answer(await tiny.engine(), text, shelf)
    assert reused == 0
    assert len(shelf.kept) == (len(text) + len(said) - 1) // PAGE > AT_ONCE
    again = await tiny.engine()
    assert (await answer(again, text, shelf))[:2] == (said, 10 * PAGE)
    longer = text + said
    once_more, reused, _ = await answer(await tiny.engine(), longer, shelf)
    assert reused == (len(longer) - 1) // PAGE * PAGE
    assert once_more == (await answer(await tiny.engine(), longer, None))[0]


async def test_the_pages_hold_the_very_bytes_that_they_held(tiny: Tiny) -> None:
    text, first, second = prompt(3 * PAGE, seed=1), Shelf(), Shelf()
    await answer(await tiny.engine(), text, first)
    again = await tiny.engine()
    await answer(again, [*text, 1], first, keep=False)
    sequence = again.new_sequence()
    await again.prefill(sequence, [*text, 1], Timings())
    await again.pages.keep(sequence, second)
    assert {name: first.kept[name] for name in second.kept} == second.kept
    assert len(second.kept) == 3


@pytest.mark.parametrize("damage", ["truncated", "empty", "changed", "of another place"])
async def test_damaged_pages_are_read_again(tiny: Tiny, damage: str) -> None:
    text, shelf = prompt(4 * PAGE + 9, seed=2), Shelf()
    said, _, _ = await answer(await tiny.engine(), text, shelf)
    names = list(shelf.kept)
    good = shelf.kept[names[2]]
    shelf.kept[names[2]] = {
        "truncated": good[:-1],
        "empty": b"",
        "changed": good[:500] + bytes([good[500] ^ 1]) + good[501:],
        "of another place": shelf.kept[names[1]],
    }[damage]
    assert (await answer(await tiny.engine(), text, shelf))[:2] == (said, 2 * PAGE)
    assert (await answer(await tiny.engine(), text, shelf))[:2] == (said, 4 * PAGE), "it was kept again"
    assert shelf.kept[names[2]] == good


async def test_other_texts_models_and_precisions_find_nothing(tiny: Tiny) -> None:
    text, shelf = prompt(3 * PAGE + 9, seed=3), Shelf()
    await answer(await tiny.engine(), text, shelf)
    other = await tiny.engine()
    other.pages.model = "another model"
    assert (await answer(other, text, shelf, keep=False))[1] == 0
    changed = [*text[:70], text[70] ^ 1, *text[71:]]
    assert (await answer(await tiny.engine(), changed, shelf, keep=False))[1] == PAGE
    if tiny.kind == "wasm":
        precision = "fast" if tiny.precision == "precise" else "precise"
        assert (await answer(await tiny.engine(precision), text, shelf, keep=False))[1] == 0


async def test_each_set_of_lora_matrices_has_pages_of_its_own(tiny: Tiny) -> None:
    text, shelf = prompt(2 * PAGE + 9, seed=4), Shelf()

    async def read(engine: Engine, seed: int | None) -> int:
        sequence = engine.new_sequence()
        if seed is not None:
            engine.use_adapter(sequence, await engine.add_adapter(drawn(tiny.pair.numpy.graph, seed)))
        await engine.prefill(sequence, text, timings := Timings(), shelf=shelf)
        await engine.pages.keep(sequence, shelf)
        return timings.reused_tokens

    assert await read(await tiny.engine(), 3) == 0
    assert await read(await tiny.engine(), None) == 0
    assert await read(await tiny.engine(), 4) == 0
    assert await read(await tiny.engine(), 3) == 2 * PAGE


async def test_a_full_shelf_keeps_the_beginning(tiny: Tiny) -> None:
    text, shelf = prompt(4 * PAGE + 9, seed=5), Shelf(room=2)
    said, _, _ = await answer(await tiny.engine(), text, shelf)
    assert list(shelf.kept) == page_names(_key(tiny), text)[:2]
    assert (await answer(await tiny.engine(), text, shelf))[:2] == (said, 2 * PAGE)


async def test_where_taking_a_page_is_slower_than_reading_it_the_text_is_read(tiny: Tiny) -> None:
    text, shelf = prompt(3 * PAGE + 9, seed=6), Shelf()
    await answer(await tiny.engine(), text, shelf)
    engine = await tiny.engine()
    engine.pages.page_seconds, engine.pages.token_seconds = 64.0, 0.9
    assert (await answer(engine, text, shelf, keep=False))[1] == 0
    engine = await tiny.engine()
    engine.pages.page_seconds, engine.pages.token_seconds = 64.0, 1.1
    assert (await answer(engine, text, shelf, keep=False))[1] == 3 * PAGE


def _key(tiny: Tiny) -> str:
    return tiny.open[-1].pages._key(0)
