"""Pages of keys and values are demoted as they age: as numpy does it, for all sequences that share them. Tiny
models."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.wasm.backend import WasmBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.engine.engine import Engine, Timings
from py_core.paging import page_table
from py_core.paging.page_table import PAGE, PageTable, tier_of
from py_core.paging.tiers import MOST_CODE, Tier, TierPolicy, demoted
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import GREEDY, Pair, collect, open_pair, prompt
from tests.backends.dying_host import DyingOnceHost
from tests.backends.webgpu.gpu_shapes import HARDWARE
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 12 * PAGE
POLICY = TierPolicy(hot=2, warm=1, least=2)
SMALL = DeviceSettings(first_demoted=2, demoted_at_once=2)
WARM = TierPolicy(hot=2, warm=CONTEXT, least=2)
"""Tolerance for comparisons that depend on the order of events: four bits are coarse for such a small model."""


def written(folder: Path) -> Path:
    tiny = TinyLlama(formats=("F32",), embedding_format="F32", tied=False, context=CONTEXT)
    return tiny.write(folder / "tiny.gguf")


@pytest.fixture(params=["wasm", "webgpu"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[POLICY])
async def tiny(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    if kind == "wasm":
        pair = await open_pair(written(tmp_path), WasmtimeHost(kernel_wasm()), tiers=request.param)
    else:  # in passes with the same number of rows as the others'
        pair = await open_pair(written(tmp_path), WgpuHost(), shapes=HARDWARE, tiers=request.param, settings=SMALL)
    yield pair
    pair.other.close()


def table_of(pair: Pair) -> PageTable:
    assert isinstance(pair.other, PipelinedBackend)
    table = pair.other.pages.table
    assert table is not None
    return table


def tiers_of(pair: Pair, sequence: TokenSequence) -> list[Tier]:
    return [tier_of(page) for page in table_of(pair).held(sequence.slot)]


async def exact_logits(pair: Pair, tokens: list[int]) -> np.ndarray:
    """The logits without tiers, on numpy."""
    tiers, pair.numpy._tiers = pair.numpy._tiers, None
    sequence = pair.numpy.new_sequence()
    await pair.numpy.prefill(sequence, tokens)
    logits = await pair.numpy.logits(sequence)
    pair.numpy.free(sequence)
    pair.numpy._tiers = tiers
    return logits


async def off(pair: Pair, ours: TokenSequence, reference: TokenSequence | None = None) -> float:
    """The distance of logits from those of a sequence on numpy, or from exact ones, relative to the largest."""
    got, exact = await pair.other.logits(ours), await exact_logits(pair, ours.tokens)
    expected = await pair.numpy.logits(reference) if reference else exact
    return float(np.abs(got - expected).max() / np.abs(exact).max())


@pytest.mark.parametrize("tier", [Tier.WARM, Tier.COLD])
def test_what_is_left_of_a_page_is_within_half_a_step(tier: Tier) -> None:
    rng = np.random.default_rng(0)
    keys, values = (rng.standard_normal((PAGE, 3, 8)).astype(np.float32) for _ in range(2))
    keys += 30 * rng.standard_normal((1, 3, 8)).astype(
        np.float32
    )  # channels far from 0, which a common scale would lose
    for x, left, axis in zip((keys, values), demoted(keys, values, tier), (0, 2), strict=True):
        step = (x.max(axis, keepdims=True) - x.min(axis, keepdims=True)) / MOST_CODE[tier]
        halves = np.abs(x).max() * 2.0**-10  # of offsets and scales
        assert (np.abs(left - x) <= step / 2 + halves).all()
    alike = np.full((PAGE, 1, 8), 3.0, np.float32)
    assert all((left == alike).all() for left in demoted(alike, alike, tier))


def test_the_oldest_pages_take_the_fewest_bits() -> None:
    policy = TierPolicy(hot=2, warm=3, least=4)
    assert policy.tiers(4) == [Tier.HOT] * 4
    assert policy.tiers(7) == [Tier.COLD] * 2 + [Tier.WARM] * 3 + [Tier.HOT] * 2
    with pytest.raises(ValueError, match="at least 2"):
        TierPolicy(hot=1)


@pytest.mark.every_backend
async def test_a_long_text_has_the_logits_of_numpy_with_the_same_tiers(tiny: Pair) -> None:
    ours, reference = await tiny.prefilled(prompt(9 * PAGE + 5, seed=1))
    assert tiers_of(tiny, ours) == [Tier.COLD] * 6 + [Tier.WARM] + [Tier.HOT] * 3
    assert await off(tiny, ours, reference) < 0.01 < 0.1 < await off(tiny, ours)
    await tiny.numpy.prefill(reference, await collect(tiny.other, ours, 2 * PAGE))
    # Numpy reads these in other passes, so that pages were demoted before other tokens.
    assert await off(tiny, ours, reference) < 0.1
    assert tiers_of(tiny, ours) == [Tier.COLD] * 8 + [Tier.WARM] + [Tier.HOT] * 3


async def test_what_memory_holds_is_told_by_tier_and_has_an_owner(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(9 * PAGE + 5, seed=1))
    use, page = tiny.other.memory(), {}
    for tier in Tier:
        page[tier] = use.pages[tier.name.lower()].conversations / tiers_of(tiny, sequence).count(tier)
    assert page[Tier.COLD] < page[Tier.WARM] < page[Tier.HOT]
    if isinstance(tiny.other, WasmBackend):
        assert use.total == tiny.other.pages.store.end
    else:
        assert isinstance(tiny.other, WebGPUBackend)
        assert use.total == sum(tiny.other.device.host.buffer_bytes().values())
    assert all(min(each.conversations, each.kept, each.free) >= 0 for each in use.pages.values())


async def test_a_text_that_is_short_has_exact_pages(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(3 * PAGE - 1, seed=1))
    assert set(tiers_of(tiny, sequence)) == {Tier.HOT}
    assert await off(tiny, sequence) <= 2e-3


async def test_who_goes_back_into_a_demoted_page_reads_it_again(tiny: Pair) -> None:
    sequences = await tiny.prefilled(prompt(8 * PAGE, seed=1))
    for backend, sequence in zip(tiny.both, sequences, strict=True):
        backend.truncate(sequence, 3 * PAGE + 10)
        assert sequence.stored == 3 * PAGE
        await backend.prefill(sequence, prompt(PAGE, seed=2))
    assert tiers_of(tiny, sequences[0]) == [Tier.COLD] * 3 + [Tier.HOT] * 2
    assert await off(tiny, *sequences) < 0.01
    # The logits of the last tokens begin in a page that was demoted, too.
    rows = []
    for backend, sequence in zip(tiny.both, sequences, strict=True):
        backend.truncate(sequence, 3 * PAGE + 2)
        rows.append(await backend.last_logits(sequence, 8))
    assert np.abs(rows[0] - rows[1]).max() < 0.01 * np.abs(rows[1]).max()


async def test_with_an_adapter_the_same_tiers_are_read(tiny: Pair) -> None:
    adapter, text = drawn(tiny.numpy.graph, 1), prompt(8 * PAGE + 5, seed=1)
    sequences = tiny.other.new_sequence(), tiny.numpy.new_sequence()
    for backend, sequence in zip(tiny.both, sequences, strict=True):
        backend.use_adapter(sequence, await backend.add_adapter(adapter))
        await backend.prefill(sequence, text)
    await tiny.numpy.prefill(sequences[1], await collect(tiny.other, sequences[0], 8))
    assert tiers_of(tiny, sequences[0]) == [Tier.COLD] * 5 + [Tier.WARM] + [Tier.HOT] * 3
    assert await off(tiny, *sequences) < 0.02 < 0.1 < await off(tiny, sequences[0])


@pytest.mark.parametrize("tiny", [WARM], indirect=True)
async def test_what_is_read_again_leaves_demoted_pages_as_they_are(tiny: Pair) -> None:
    sequence = tiny.other.new_sequence()
    await tiny.other.prefill(sequence, prompt(8 * PAGE + 3, seed=1))
    await tiny.other.token_logprobs(sequence, 1)
    await tiny.other.hidden(sequence, ["final_norm"])
    tiny.other.truncate(sequence, sequence.length)
    assert await off(tiny, sequence) < 0.05


@pytest.mark.parametrize("tiny", [WARM], indirect=True)
async def test_a_page_is_demoted_once_for_all_who_share_it(tiny: Pair) -> None:
    engine, table, text = Engine(tiny.other, ()), table_of(tiny), prompt(7 * PAGE, seed=1)
    first, second, third = (engine.new_sequence() for _ in range(3))
    await engine.prefill(first, text, Timings())
    await engine.prefill(second, [*text[: 6 * PAGE], *prompt(20, seed=2)], timings := Timings())
    assert timings.reused_tokens == 6 * PAGE
    assert tiers_of(tiny, second) == [Tier.WARM] * 4 + [Tier.HOT] * 3
    # It continues, and pages become warm for both: except the last ones of the other, which may truncate into them.
    await engine.prefill(first, text + prompt(3 * PAGE, seed=3), Timings())
    assert tiers_of(tiny, second) == [Tier.WARM] * 5 + [Tier.HOT] * 2
    assert table.held(second.slot)[:6] == table.held(first.slot)[:6]
    # A sequence with the same beginning gets no part of a demoted page.
    await engine.prefill(third, text[: 2 * PAGE + 20] + prompt(20, seed=4), timings := Timings())
    assert timings.reused_tokens == 2 * PAGE
    for sequence in (first, second, third):
        assert await off(tiny, sequence) < 0.05
    assert_no_page_is_lost(tiny, [first, second, third])


@pytest.mark.parametrize("dies", [4, 5, 6, 7, 8])
async def test_workers_that_die_while_a_page_is_demoted_cost_time_only(tmp_path: Path, kernel_wasm, dies: int) -> None:
    host = DyingOnceHost(kernel_wasm())
    pair = await open_pair(written(tmp_path), host, tiers=POLICY)
    host.dies = dies
    sequence, reference = await pair.prefilled(prompt(6 * PAGE + 5, seed=1))
    assert tiers_of(pair, sequence) == [Tier.COLD] * 3 + [Tier.WARM] + [Tier.HOT] * 3
    assert await off(pair, sequence, reference) < 0.01
    assert_no_page_is_lost(pair, [sequence])
    pair.other.close()


@pytest.mark.parametrize("tiny", [POLICY], indirect=True)
@pytest.mark.every_backend
async def test_demoted_pages_leave_and_come_back_as_they_are(tiny: Pair) -> None:
    text = prompt(9 * PAGE, seed=1)
    first, second = (tiny.other.new_sequence() for _ in range(2))
    await tiny.other.prefill(first, text)
    pages = [await tiny.other.export_page(0, text[: (place + 1) * PAGE]) for place in range(9)]
    sizes = [len(page or b"") for page in pages]
    logits, tiers = await tiny.other.logits(first), tiers_of(tiny, first)
    cold, warm, hot = (sizes[tiers.index(tier)] for tier in (Tier.COLD, Tier.WARM, Tier.HOT))
    assert 0 < cold < warm < hot
    tiny.other.free(first)
    table = table_of(tiny)
    while (page := tiny.other.pages.prefixes.tree.evict(lambda page: table.references(page) == 1)) is not None:
        table.drop([page])
    assert await tiny.other.import_pages(second, text, [page or b"" for page in pages])
    assert tiers_of(tiny, second) == tiers
    assert [await tiny.other.export_page(0, text[: (place + 1) * PAGE]) for place in range(9)] == pages
    tiny.other.truncate(second, len(text) - 1)
    await tiny.other.prefill(second, text[-1:])
    assert np.abs(await tiny.other.logits(second) - logits).max() < 1e-3 * np.abs(logits).max()
    assert_no_page_is_lost(tiny, [second])


def assert_no_page_is_lost(pair: Pair, open_ones: list[TokenSequence]) -> None:
    """When everything is closed, the pages that are kept for others remain, in each tier."""
    table = table_of(pair)
    for sequence in open_ones:
        pair.other.free(sequence)
    assert isinstance(pair.other, PipelinedBackend)
    held = {tier: sum(table.holders(tier)) for tier in Tier}
    assert sum(held.values()) == len(pair.other.pages.prefixes.tree)
    assert all(count == 1 for count in table._references.values())
    assert len(table._free) == len(set(table._free)) == table.capacity - held[Tier.HOT]
    for tier, free in table._free_demoted.items():
        assert len(free) == len(set(free)) == table.demoted_capacity[tier] - held[tier]


@pytest.mark.parametrize("tiny", [WARM], indirect=True)
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_done_in_whatever_order_each_has_about_its_own_logits(tiny: Pair, seed: int) -> None:
    """Open, read, continue, truncate, read another text, free: the logits are near those with exact pages."""
    draw, engine = random.Random(seed), Engine(tiny.other, ())
    beginnings = [prompt(5 * PAGE, seed=at) for at in range(2)]
    open_ones: list[TokenSequence] = []
    for step in range(25):
        what = draw.choice(["open", "read", "read", "go on", "go back", "free"])
        if (what == "open" and len(open_ones) < 4) or not open_ones:
            open_ones.append(engine.new_sequence())
            what = "read"
        sequence = draw.choice(open_ones)
        if what == "read":
            text = draw.choice(beginnings)[: draw.randrange(1, 5 * PAGE)] + prompt(draw.randrange(1, 250), seed=step)
            await engine.prefill(sequence, text, Timings())
        elif what == "go on" and sequence.length:
            async for _ in engine.generate(sequence, draw.randrange(1, 60), GREEDY, Timings()):
                pass
        elif what == "go back" and sequence.length > 1:
            engine.truncate(sequence, draw.randrange(1, sequence.length))
        elif what == "free":
            open_ones.remove(sequence)
            engine.free(sequence)
    for sequence in open_ones:
        if sequence.length:
            assert await off(tiny, sequence) < 0.1
    assert_no_page_is_lost(tiny, open_ones)
