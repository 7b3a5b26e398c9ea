"""The contents of an imprint, its division into parts, and that it is read back unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from py_core.adapters.head import MAX_NEIGHBOURS, check_head_adapter
from py_core.learning.imprint import (
    LAMBDA,
    OVERLAP,
    PART,
    TEMPERATURES,
    Imprint,
    ImprintError,
    directions_of,
    projected,
)

WIDTH = 96


def states(*shape: int, seed: int = 1) -> np.ndarray:
    """Random states around a large common one, like a model's."""
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((*shape, WIDTH)) + 3).astype(np.float32)


def imprint(tokens: list[int], passes: int = 2) -> tuple[Imprint, np.ndarray]:
    before = states(passes, len(tokens))
    return Imprint.of(before, tokens, directions_of(states(300, seed=2)), "this lesson"), before


def test_the_directions_that_all_states_share_are_taken_out() -> None:
    directions = directions_of(states(300))
    assert directions.shape == (8, WIDTH)
    np.testing.assert_allclose(directions @ directions.T, np.eye(8), atol=1e-5)
    rest = projected(states(4, seed=9), directions)
    np.testing.assert_allclose(rest @ directions.T, 0, atol=1e-4)
    unit = rest / np.linalg.norm(rest, axis=1, keepdims=True)
    assert np.abs(unit @ unit.T - np.eye(4)).max() < 0.5  # before, all cosines were near 0.9
    np.testing.assert_array_equal(projected(directions[:1], directions), directions[:1])  # it contained nothing else
    assert directions_of(states(300)[:, :16]).shape == (2, 16)


def test_a_short_answer_is_one_adapter_with_the_states_of_both_passes() -> None:
    made, before = imprint(list(range(32)))
    (part,) = made.parts()
    assert part.tokens == 32
    assert part.adapter.states.shape == (MAX_NEIGHBOURS, WIDTH)
    assert part.adapter.tokens.tolist() == [*range(32), *range(32)]
    check_head_adapter(part.adapter, WIDTH, 100)
    assert made.temperature == TEMPERATURES[0]
    assert -np.log(LAMBDA) <= made.least_nll(before[0]) < 0.08


def test_a_long_answer_is_cut_into_parts_that_overlap_and_nothing_of_it_is_left_out() -> None:
    tokens = list(range(130))
    made, before = imprint(tokens)
    parts = made.parts()
    assert [part.tokens for part in parts] == [24, 24, 24, 24, 24, 10]
    begin = 0
    for part in parts:
        check_head_adapter(part.adapter, WIDTH, 200)
        of_it = tokens[max(begin - OVERLAP, 0) : begin + PART + OVERLAP]
        assert part.adapter.tokens.tolist() == of_it * 2
        begin += part.tokens
    assert begin == len(tokens)
    assert made.least_nll(before[0]) < 0.08


def test_states_that_lie_near_each_other_are_told_apart_by_a_sharper_softmax() -> None:
    near = (states(1, 1) + (states(1, 12, seed=3) - 3)).astype(np.float32)
    made = Imprint.of(near, list(range(12)), np.zeros((1, WIDTH), np.float32))
    assert made.temperature < TEMPERATURES[0]
    assert made.least_nll(near[0]) < 0.08


def test_an_imprint_is_read_back_as_it_was() -> None:
    made, _ = imprint([3, 1, 2])
    data = made.to_bytes()
    read = Imprint.from_bytes(data)
    assert read.to_bytes() == data
    for one, other in zip(made.parts(), read.parts(), strict=True):
        np.testing.assert_array_equal(one.adapter.states, other.adapter.states)
    assert read.made_of == "this lesson"
    error = np.abs(made.states - projected(states(2, 3), directions_of(states(300, seed=2))))
    assert error.max() < np.abs(made.states).max() / 200


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-5], lambda data: data[:40] + b"?" * 30])
def test_damaged_bytes_are_no_imprint(damage) -> None:
    with pytest.raises(ImprintError):
        Imprint.from_bytes(damage(imprint([3, 1, 2])[0].to_bytes()))
