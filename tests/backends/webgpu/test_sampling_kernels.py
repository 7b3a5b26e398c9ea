"""Argmax, penalties and sampling on the GPU against py_core/sampling.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import ROW_BYTES, STATE_HEADER, state_bytes
from py_core.sampling import SamplingParams, apply_penalties, sample

MAX_ROWS, RING = 4, 512

few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
# Each is compiled: sizes around the 64 lanes, and with many per lane.
SIZES = st.sampled_from([1, 5, 63, 64, 65, 900])


def start_state(positions: Sequence[int], rules: Sequence[SamplingParams]) -> bytes:
    """Row r is in slot MAX_ROWS - 1 - r: no row's number is that of its slot by accident."""
    rows = [(9, position, MAX_ROWS - 1 - row) for row, position in enumerate(positions)]
    return state_bytes(rows, rules, len(rows)) + bytes(ROW_BYTES * (MAX_ROWS - len(rows)))


def draw_on_gpu(
    run_kernel, kernel: str, logits: np.ndarray, positions: Sequence[int], rules: Sequence[SamplingParams]
) -> list[int]:
    """Returns the rows' tokens; checks that they became the next step's input, and their places in the rings.

    logits (rows, vocabulary); one position and one set of rules for each row.
    """
    count, size = logits.shape
    before = start_state(positions, rules)
    state, history = run_kernel(
        kernel, [before, logits, bytes(MAX_ROWS * RING * 4)], (count, 1, 1),
        MAX_ROWS=MAX_ROWS, VOCAB=size, RING=RING, WORKGROUP=64,
    )  # fmt: skip
    header, started = (np.frombuffer(data[:STATE_HEADER], np.uint32) for data in (state, before))
    np.testing.assert_array_equal(header, started)
    after, started = (
        np.frombuffer(data[STATE_HEADER:], np.uint32).reshape(-1, ROW_BYTES // 4) for data in (state, before)
    )
    drawn = after[:count, 0].tolist()
    np.testing.assert_array_equal(after[:count, 1], np.array(positions) + 1)
    np.testing.assert_array_equal(after[:, 2:], started[:, 2:])
    ring = np.frombuffer(history, np.uint32)[: MAX_ROWS * RING].reshape(MAX_ROWS, RING)
    for row, (token, position) in enumerate(zip(drawn, positions, strict=True)):
        assert ring[MAX_ROWS - 1 - row, (position + 1) % RING] == token
    assert np.count_nonzero(ring) == np.count_nonzero(drawn)
    return drawn


@given(
    size=SIZES, positions=st.lists(st.integers(3, 2000), min_size=1, max_size=MAX_ROWS),
    seed=st.integers(0, 9999), levels=st.sampled_from([2, 50, 10**6]),
)  # fmt: skip
@few
def test_argmax_takes_the_first_of_the_largest_of_each_row(run_kernel, size, positions, seed, levels) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.integers(-levels, levels, (len(positions), size)) / 7).astype(np.float32)
    drawn = draw_on_gpu(run_kernel, "argmax", logits, positions, [SamplingParams()] * len(positions))
    assert drawn == np.argmax(logits, axis=1).tolist()


def possible(logits: np.ndarray, position: int, rules: SamplingParams) -> set[int]:
    """The reference's draw, and its draws with other borders.

    A random number that falls on the border of two tokens may go either way by rounding; so may a token on the border
    of top-p or min-p.
    """
    return {
        sample(logits, [], position + 1, dataclasses.replace(rules, top_p=p, min_p=m))
        for p in (rules.top_p, rules.top_p * (1 - 1e-5), min(1.0, rules.top_p * (1 + 1e-5)))
        for m in (rules.min_p, rules.min_p * (1 - 1e-5), min(1.0, rules.min_p * (1 + 1e-5)))
    }


sampled = st.builds(
    SamplingParams, seed=st.integers(0, 2**32 - 1), temperature=st.floats(0.1, 3),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 10**6]), top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)  # fmt: skip


@given(
    size=SIZES, seed=st.integers(0, 9999),
    rows=st.lists(st.tuples(st.integers(0, 5000), sampled), min_size=1, max_size=MAX_ROWS),
)  # fmt: skip
@example(  # the share of top-p is relative to the result of top-k
    size=64, seed=1,
    rows=[(n, SamplingParams(seed=n, temperature=2.0, top_k=2, top_p=0.5, min_p=0.0)) for n in range(MAX_ROWS)],
)  # fmt: skip
@few
def test_sample_draws_by_the_rules_of_each_row(run_kernel, size, seed, rows) -> None:
    logits = (np.random.default_rng(seed).standard_normal((len(rows), size)) * 3).astype(np.float32)
    positions, rules = zip(*rows, strict=True)
    drawn = draw_on_gpu(run_kernel, "sample", logits, positions, rules)
    for row, token in enumerate(drawn):
        assert token in possible(logits[row], positions[row], rules[row])


def test_samples_follow_the_probabilities(run_kernel) -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    logits = np.log(probabilities).astype(np.float32)
    draws = 400
    counts = np.zeros(5)
    rules = [SamplingParams(seed=11, temperature=1.0)] * MAX_ROWS
    for first in range(0, draws, MAX_ROWS):
        rows = np.tile(logits, (MAX_ROWS, 1))
        for token in draw_on_gpu(run_kernel, "sample", rows, range(first, first + MAX_ROWS), rules):
            counts[token] += 1
    expected = draws * probabilities
    assert np.sum((counts - expected) ** 2 / expected) < 18.5  # chi-square, 4 degrees of freedom, p = 0.001


penalized = st.builds(
    SamplingParams, repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]), presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.2, -0.1]), penalty_window=st.integers(0, 256),
)  # fmt: skip


@given(
    size=st.sampled_from([5, 60]), seed=st.integers(0, 9999),
    rows=st.lists(st.tuples(st.integers(1, 300), penalized), min_size=1, max_size=MAX_ROWS),
)  # fmt: skip
@few
def test_penalties_of_each_row_equal_the_reference(run_kernel, size, seed, rows) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((len(rows), size)).astype(np.float32)
    lengths, rules = zip(*rows, strict=True)
    texts = [rng.integers(0, size, length) for length in lengths]
    rings = np.zeros((MAX_ROWS, RING), np.uint32)
    for row, text in enumerate(texts):
        rings[MAX_ROWS - 1 - row, np.arange(len(text)) % RING] = text
    (out,) = run_kernel(
        "penalties", [start_state([length - 1 for length in lengths], rules), logits, rings], (len(rows), 1, 1),
        MAX_ROWS=MAX_ROWS, VOCAB=size, RING=RING, WORKGROUP=256,
    )  # fmt: skip
    found = np.frombuffer(out, np.float32)[: logits.size].reshape(logits.shape)
    for row, text in enumerate(texts):
        recent = text[-rules[row].penalty_window :].tolist() if rules[row].penalty_window else []
        np.testing.assert_allclose(found[row], apply_penalties(logits[row], recent, rules[row]), rtol=1e-5, atol=1e-6)
