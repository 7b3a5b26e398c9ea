"""The WASM kernels of the head's input and of scores against numpy, in both builds: each row with its own adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter, logsumexp
from py_core.backends.grammar_states import MASK_STATE, mask_state
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.head import HeadMemory
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.wasm.layout import Arena
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams, mask_words, unmasked
from tests.backends.head_adapters import changed_rows, drawn_adapters
from tests.backends.wasm.kernel_memory import ROOM, few, put, read, run

VOCAB = 203


class Memory(HeadMemory):
    """Slots are in the arena, without pages of keys and values."""

    def __init__(self, host: WasmtimeHost, width: int) -> None:
        self.arena = Arena()
        super().__init__(width, ROOM, self.arena)
        for address, data in self.arena.writes:
            host.write(address, data)

    async def take(self, nbytes: int) -> int:
        return self.arena.take(nbytes)


@given(m=st.integers(1, ROOM), blocks=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@few
def test_each_row_has_its_own_adapter_or_none(host: WasmtimeHost, m: int, blocks: int, seed: int) -> None:
    width, draw = 4 * blocks, np.random.default_rng(seed)
    memory, chosen, h = placed(host, width, m, draw)
    logits = (4 * draw.standard_normal((m, VOCAB))).astype(np.float32)
    place = put(host, memory.arena, logits)
    host.write(memory.h, h.tobytes())
    run(host, memory.arena, [memory.adapt(), *memory.mix(place, VOCAB)], state(m, chosen))
    expected = changed_rows([one for _, one in chosen], h, logits)
    got = read(host, place, m, VOCAB)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-4)
    untouched = np.array([one is None for _, one in chosen])
    np.testing.assert_array_equal(got[untouched], logits[untouched])


@given(m=st.integers(1, ROOM), columns=st.sampled_from([4, 32, 100, VOCAB]), seed=st.integers(0, 2**32 - 1))
@few
def test_scores_are_log_p_of_the_changed_logits(host: WasmtimeHost, m: int, columns: int, seed: int) -> None:
    width, draw = 32, np.random.default_rng(seed)
    memory, chosen, h = placed(host, width, m, draw)
    logits = (4 * draw.standard_normal((m, VOCAB))).astype(np.float32)
    neighbours = [one for _, one in chosen if one]
    followed = np.concatenate([one.tokens for one in neighbours]) if neighbours else np.arange(VOCAB)
    targets = np.where(draw.random(m) < 0.5, draw.choice(followed, m), draw.integers(0, VOCAB, m))
    host.write(memory.h, h.tobytes())
    host.write(memory.targets, targets.astype(np.uint32).tobytes())
    ops = [memory.adapt()]
    for first in range(0, VOCAB, columns):
        piece = logits[:, first : first + columns]
        place = put(host, memory.arena, np.pad(piece, ((0, 0), (0, columns - piece.shape[1]))))
        ops += memory.sum_columns(place, piece.shape[1], columns, first)
    run(host, memory.arena, [*ops, memory.score()], state(m, chosen))
    changed = changed_rows([one for _, one in chosen], h, logits)
    expected = changed[np.arange(m), targets] - logsumexp(changed)
    np.testing.assert_allclose(read(host, memory.scores, m), expected, rtol=1e-4, atol=2e-4)


@pytest.fixture(scope="module")
def pool(kernel_wasm: Callable[[], Path]) -> WasmtimeHost:
    """Three workers, each with its own share of the columns."""
    host = WasmtimeHost(kernel_wasm(), workers=3)
    asyncio.run(host.reserve(64 << 20))
    return host


@given(
    m=st.integers(1, ROOM), columns=st.sampled_from([32, 100, VOCAB]), seed=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([0.0, 0.7]), shifted=st.booleans(),
)  # fmt: skip
@few
def test_tokens_for_masks_are_those_of_numpy(
    pool: WasmtimeHost, m: int, columns: int, seed: int, temperature: float, shifted: bool
) -> None:
    memory, draw = Memory(pool, 32), np.random.default_rng(seed)
    logits = (4 * draw.standard_normal((m, VOCAB))).astype(np.float32)
    diffusion, rules = Diffusion(int(logits[0].argmax()), 8, shifted), SamplingParams(temperature, seed=seed)
    row, may = m - 1, draw.integers(0, 1 << 32, mask_words(VOCAB), np.uint32)
    grammars = put(pool, memory.arena, mask_state(may))
    ops = []
    for first in range(0, VOCAB, columns):
        piece = logits[:, first : first + columns]
        place = put(pool, memory.arena, np.pad(piece, ((0, 0), (0, columns - piece.shape[1]))))
        ops += memory.draw_columns(diffusion, grammars, place, piece.shape[1], columns, first)
    rows = [(0, 5 + row, 0) for row in range(m)]
    states = [MASK_STATE * (at == row) for at in range(m)]
    run(pool, memory.arena, [*ops, memory.unmask()], state_bytes(rows, rules, m, grammar_states=states))
    drawn = read(pool, memory.unmasked, m, 2)
    expected = unmasked(logits, 5 + shifted, rules, diffusion.mask, (row, may))
    np.testing.assert_array_equal(drawn[:, 0].view(np.uint32), expected.ids)
    np.testing.assert_allclose(drawn[:, 1], expected.scores, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("gap", [0.0, 200.0, 1e30])
def test_scores_hold_where_all_but_one_token_are_next_to_impossible(host: WasmtimeHost, gap: float) -> None:
    memory = Memory(host, 32)
    logits = np.full((1, VOCAB), -gap, np.float32)
    logits[0, 200] = 0
    place = put(host, memory.arena, logits)
    for target in (3, 200):
        host.write(memory.targets, np.array([target], np.uint32).tobytes())
        ops = [memory.adapt(), *memory.sum_columns(place, VOCAB, VOCAB, 0), memory.score()]
        run(host, memory.arena, ops, state(1, [(0, None)]))
        expected = logits[0, target] - logsumexp(logits.astype(np.float64))[0]
        np.testing.assert_allclose(read(host, memory.scores, 1)[0], expected, rtol=1e-6, atol=1e-6)


def test_slots_hold_the_largest_adapters(host: WasmtimeHost) -> None:
    memory, draw, width = Memory(host, 64), np.random.default_rng(3), 64
    chosen = []
    for number in (1, 2, 3):
        states = draw.standard_normal((MAX_NEIGHBOURS, width)).astype(np.float32)
        chosen.append((number, NeighbourAdapter(states, draw.integers(0, VOCAB, MAX_NEIGHBOURS), tau=-1)))
        asyncio.run(memory.place(host, memory, *chosen[-1]))
    h, logits = draw.standard_normal((3, width)).astype(np.float32), draw.standard_normal((3, VOCAB)).astype(np.float32)
    place = put(host, memory.arena, logits)
    host.write(memory.h, h.tobytes())
    run(host, memory.arena, [memory.adapt(), *memory.mix(place, VOCAB)], state(3, chosen))
    expected = changed_rows([one for _, one in chosen], h, logits)
    np.testing.assert_allclose(read(host, place, 3, VOCAB), expected, rtol=1e-4, atol=2e-4)


def placed(host: WasmtimeHost, width: int, m: int, draw: np.random.Generator):
    """Memory with some adapters; for each of m rows the number and the adapter, and its state."""
    memory = Memory(host, width)
    h = draw.standard_normal((m, width)).astype(np.float32)
    adapters = drawn_adapters(draw, h, VOCAB)
    for number, adapter in enumerate(adapters[1:], 1):
        asyncio.run(memory.place(host, memory, number, adapter))
    numbers = draw.integers(0, len(adapters), m)
    return memory, [(int(number), adapters[number]) for number in numbers], h


def state(m: int, chosen) -> bytes:
    rows = [(0, row, 0) for row in range(m)]
    return state_bytes(rows, head_adapters=[number for number, _ in chosen])
