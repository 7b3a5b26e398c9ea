"""Argmax, penalties and sampling on the GPU against py_core/sampling.py."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import STATE_HEADER, state_bytes
from py_core.sampling import SamplingParams, apply_penalties, sample

MAX_ROWS, RING = 4, 512

few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
# Each is compiled: around the 64 lanes, and where a lane has many.
SIZES = st.sampled_from([1, 5, 63, 64, 65, 900])


def start_state(position: int, count: int = 1, slot: int = 0, **rules) -> bytes:
    rows = [(9, position - count + 1 + row, slot) for row in range(count)]
    return state_bytes(rows, SamplingParams(**rules)) + bytes(16 * (MAX_ROWS - count))


def draw_on_gpu(run_kernel, kernel: str, logits: np.ndarray, position: int, count: int = 1, **rules) -> int:
    """The token that the kernel drew; checks that it became the next step's only input, and its place in the ring."""
    slot, workgroup = 1, 64
    state, history = run_kernel(
        kernel, [start_state(position, count, slot, **rules), logits, bytes(2 * RING * 4)], (1, 1, 1),
        MAX_ROWS=MAX_ROWS, VOCAB=logits.size, RING=RING, WORKGROUP=workgroup,
    )  # fmt: skip
    words = np.frombuffer(state, np.uint32)
    token, next_position, next_slot, _ = words[STATE_HEADER // 4 :][:4]
    assert words[0] == 1
    assert (next_position, next_slot) == (position + 1, slot)
    ring = np.frombuffer(history, np.uint32)[: 2 * RING].reshape(2, RING)
    assert ring[slot, (position + 1) % RING] == token
    assert np.count_nonzero(ring) == (token != 0)
    return int(token)


@given(
    size=SIZES, position=st.integers(3, 2000), count=st.integers(1, MAX_ROWS), seed=st.integers(0, 9999),
    levels=st.sampled_from([2, 50, 10**6]),
)  # fmt: skip
@few
def test_argmax_takes_the_first_of_the_largest(run_kernel, size, position, count, seed, levels) -> None:
    logits = (np.random.default_rng(seed).integers(-levels, levels, size) / 7).astype(np.float32)
    assert draw_on_gpu(run_kernel, "argmax", logits, position, count) == int(np.argmax(logits))


@given(
    size=SIZES, position=st.integers(0, 5000), seed=st.integers(0, 2**32 - 1),
    temperature=st.floats(0.1, 3), top_k=st.sampled_from([0, 1, 2, 7, 40, 10**6]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]), min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)  # fmt: skip
@few
def test_sample_draws_what_the_reference_draws(
    run_kernel, size, position, seed, temperature, top_k, top_p, min_p
) -> None:
    logits = (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)
    rules = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    drawn = draw_on_gpu(
        run_kernel, "sample", logits, position,
        seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
    )  # fmt: skip
    expected = sample(logits, [], position + 1, rules)
    if drawn != expected:
        # A random number that falls on the border of two tokens may go either way by rounding; so may a token on
        # the border of top-p or min-p. A neighbouring draw of the reference must then agree.
        near = [
            sample(
                logits,
                [],
                position + 1,
                SamplingParams(temperature=temperature, top_k=top_k, top_p=p, min_p=m, seed=seed),
            )
            for p in (top_p * (1 - 1e-5), min(1.0, top_p * (1 + 1e-5)))
            for m in (min_p * (1 - 1e-5), min(1.0, min_p * (1 + 1e-5)))
        ]
        assert drawn in near


def test_samples_follow_the_probabilities(run_kernel) -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    logits = np.log(probabilities).astype(np.float32)
    draws = 400
    counts = np.zeros(5)
    for position in range(draws):
        counts[draw_on_gpu(run_kernel, "sample", logits, position, seed=11, temperature=1.0)] += 1
    expected = draws * probabilities
    assert np.sum((counts - expected) ** 2 / expected) < 18.5  # chi-square, 4 degrees of freedom, p = 0.001


@given(
    size=st.sampled_from([5, 60]), length=st.integers(1, 300), window=st.integers(0, 256), seed=st.integers(0, 9999),
    repetition=st.sampled_from([1.0, 1.3, 0.7]), presence=st.sampled_from([0.0, 0.5]),
    frequency=st.sampled_from([0.0, 0.2, -0.1]),
)  # fmt: skip
@few
def test_penalties_equal_the_reference(run_kernel, size, length, window, seed, repetition, presence, frequency) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(size).astype(np.float32)
    tokens = rng.integers(0, size, length)
    ring = np.zeros((2, RING), np.uint32)
    ring[1, np.arange(length) % RING] = tokens
    rules = {"repetition_penalty": repetition, "presence_penalty": presence, "frequency_penalty": frequency}
    (out,) = run_kernel(
        "penalties", [start_state(length - 1, slot=1, penalty_window=window, **rules), logits, ring], (1, 1, 1),
        MAX_ROWS=MAX_ROWS, VOCAB=size, RING=RING, WORKGROUP=256,
    )  # fmt: skip
    recent = tokens[-window:].tolist() if window else []
    expected = apply_penalties(logits, recent, SamplingParams(**rules))
    np.testing.assert_allclose(np.frombuffer(out, np.float32)[:size], expected, rtol=1e-5, atol=1e-6)
