"""The GPU kernels of the head's input and of scores against numpy: each row with its own adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter, logsumexp
from py_core.backends.head_slots import slot_bytes, slot_data
from py_core.backends.numpy import rows as reference
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from tests.backends.head_adapters import changed_rows, drawn_adapters

MAX_ROWS, WIDTH, VOCAB, NEAR = 8, 96, 203, 1 + MAX_NEIGHBOURS
few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
REDUCTIONS = [("reduce_single", 1, 64), ("reduce_workgroup", 32, 64), ("reduce_subgroup", 4, 128)]


def adapt(run_kernel, variant, x: np.ndarray, numbers: Sequence[int], adapters, scored: bool = False):
    """The rows that the kernel changed, and its notes about neighbours. The first row of x needs no logits.

    If tokens are `scored`, rows are taken from x in the opposite order.
    """
    reduce, lanes, workgroup = variant
    m, weight = len(numbers), np.linspace(0.5, 2, WIDTH).astype(np.float32)
    rows = [(0, 0, m - row) for row in range(m)] if scored else [(0, 0, 0)] * (m + 1)
    state = state_bytes(rows, logit_rows=m, head_adapters=[*([] if scored else [0]), *numbers])
    y, near = run_kernel(
        "head_adapt",
        [state + bytes(ROW_BYTES * (MAX_ROWS - len(rows))), weight, x, slots(adapters), bytes(4 * x.size),
         np.full((MAX_ROWS, NEAR), 7, np.float32)],
        (MAX_ROWS, 1, 1), {"reduce": reduce}, MAX_ROWS=MAX_ROWS, K=WIDTH, EPS=1e-4, LANES=lanes, WORKGROUP=workgroup,
        SCORED=scored,
    )  # fmt: skip
    h = reference.rms_norm(x[1 : m + 1], weight, 1e-4)
    changed = np.frombuffer(y, np.float32)[: m * WIDTH].reshape(m, WIDTH)
    return changed, np.frombuffer(near, np.float32)[: MAX_ROWS * NEAR].reshape(MAX_ROWS, NEAR), h


def slots(adapters: Sequence[NeighbourAdapter | None]) -> bytes:
    return b"".join(slot_data(one).ljust(slot_bytes(WIDTH), b"\0") for one in adapters if one) or bytes(16)


def noted(adapters: Sequence[NeighbourAdapter | None], numbers: Sequence[int], h: np.ndarray) -> np.ndarray:
    """The expected contents of `near` for rows with these adapters: an open gate's slot, and weights."""
    near = np.zeros((MAX_ROWS, NEAR), np.float32)
    for row, number in enumerate(numbers):
        adapter = adapters[number]
        if adapter and (weights := adapter.weights(h[row : row + 1])[0]).any():
            near[row, 0], near[row, 1 : 1 + len(weights)] = number, weights
    return near


@pytest.mark.parametrize("variant", REDUCTIONS, ids=[reduce for reduce, _, _ in REDUCTIONS])
@given(m=st.integers(1, MAX_ROWS - 1), seed=st.integers(0, 2**32 - 1))
@few
def test_each_row_has_the_neighbours_of_its_own_adapter(run_kernel, variant, m: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((MAX_ROWS, WIDTH)).astype(np.float32)
    states = reference.rms_norm(x[1 : m + 1], np.linspace(0.5, 2, WIDTH).astype(np.float32), 1e-4)
    adapters = drawn_adapters(draw, states, VOCAB)
    numbers = draw.integers(0, len(adapters), m).tolist()
    normalized, near, h = adapt(run_kernel, variant, x, numbers, adapters)
    np.testing.assert_allclose(normalized, h, rtol=1e-4, atol=1e-4)
    same_as(near, noted(adapters, numbers, h), m)


def same_as(near: np.ndarray, expected: np.ndarray, m: int) -> None:
    np.testing.assert_array_equal(near[:m, 0], expected[:m, 0])
    for row in np.flatnonzero(expected[:m, 0]):
        count = np.flatnonzero(expected[row]).max() + 1
        np.testing.assert_allclose(near[row, :count], expected[row, :count], rtol=1e-3, atol=1e-5)
    assert (near[m:] == 7).all(), "rows that need no logits have no notes"


def test_rows_to_score_are_found_by_their_slots_and_the_largest_adapters_fit(run_kernel) -> None:
    draw = np.random.default_rng(5)
    x = draw.standard_normal((MAX_ROWS, WIDTH)).astype(np.float32)
    adapters: list[NeighbourAdapter | None] = [None]
    for _ in range(2):
        states = draw.standard_normal((MAX_NEIGHBOURS, WIDTH)).astype(np.float32)
        tokens = draw.integers(0, VOCAB, MAX_NEIGHBOURS)
        adapters.append(NeighbourAdapter(states, tokens, tau=-1, temperature=0.1))
    normalized, notes, h = adapt(run_kernel, REDUCTIONS[0], x, [2, 0, 1], adapters, scored=True)
    np.testing.assert_allclose(normalized, h[::-1], rtol=1e-4, atol=1e-4)
    same_as(notes, noted(adapters, [2, 0, 1], h[::-1]), 3)


@given(m=st.integers(1, MAX_ROWS), cap=st.sampled_from([0.0, 5.0]), seed=st.integers(0, 2**32 - 1))
@few
def test_logits_of_neighbours_and_scores_are_those_of_numpy(run_kernel, m: int, cap: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    h = draw.standard_normal((m, WIDTH)).astype(np.float32)
    adapters = drawn_adapters(draw, h, VOCAB)
    numbers = draw.integers(0, len(adapters), m).tolist()
    rows = [adapters[number] for number in numbers]
    logits = (4 * draw.standard_normal((MAX_ROWS, VOCAB))).astype(np.float32)
    near = noted(adapters, numbers, h)
    state = state_bytes([(0, 0, 0)] * m, logit_rows=m, head_adapters=numbers) + bytes(ROW_BYTES * (MAX_ROWS - m))
    constants = {"MAX_ROWS": MAX_ROWS, "K": WIDTH, "VOCAB": VOCAB, "WORKGROUP": 64}
    (mixed,) = run_kernel("head_mix", [state, slots(adapters), near, logits], (MAX_ROWS, 1, 1), **constants)
    mixed = np.frombuffer(mixed, np.float32)[: logits.size].reshape(logits.shape)
    expected = changed_rows(rows, h, logits[:m])
    np.testing.assert_allclose(mixed[:m], expected, rtol=1e-4, atol=2e-4)
    np.testing.assert_array_equal(mixed[m:], logits[m:])

    followed = np.concatenate([one.tokens for one in rows if one] or [np.arange(VOCAB)])
    tokens = np.where(draw.random(m) < 0.5, draw.choice(followed, m), draw.integers(0, VOCAB, m))
    targets = state_bytes([(int(token), 0, m - 1 - row) for row, token in enumerate(tokens)], head_adapters=numbers)
    (scores,) = run_kernel(
        "token_scores",
        [targets + bytes(ROW_BYTES * (MAX_ROWS - m)), slots(adapters), near, logits, np.full(MAX_ROWS, 7, np.float32)],
        (MAX_ROWS, 1, 1), CAP=cap, **constants,
    )  # fmt: skip
    changed = changed_rows(rows, h, reference.soft_cap(logits[:m], cap) if cap else logits[:m])
    found = np.frombuffer(scores, np.float32)[:MAX_ROWS]
    np.testing.assert_allclose(
        found[:m][::-1], (changed[np.arange(m), tokens] - logsumexp(changed)), rtol=1e-4, atol=2e-4
    )
    assert (found[m:] == 7).all()


def test_a_token_of_many_neighbours_is_changed_once(run_kernel) -> None:
    """Each of a workgroup's invocations has neighbours, of which several name the same token."""
    draw = np.random.default_rng(7)
    states = draw.standard_normal((MAX_NEIGHBOURS, WIDTH)).astype(np.float32)
    near = NeighbourAdapter(states, np.arange(MAX_NEIGHBOURS) % 3, tau=-1, temperature=1)
    h, logits = states[:1], draw.standard_normal((1, VOCAB)).astype(np.float32)
    state = state_bytes([(0, 0, 0)], head_adapters=1) + bytes(ROW_BYTES * (MAX_ROWS - 1))
    notes = noted([None, near], [1], h)
    constants = {"MAX_ROWS": MAX_ROWS, "K": WIDTH, "VOCAB": VOCAB, "WORKGROUP": 64}
    (mixed,) = run_kernel("head_mix", [state, slots([None, near]), notes, logits], (1, 1, 1), **constants)
    np.testing.assert_allclose(np.frombuffer(mixed, np.float32)[:VOCAB], near.changed(h, logits)[0], atol=1e-4)
