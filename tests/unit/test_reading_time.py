"""The remaining time for reading a prompt: reported when known, by the pace of the last seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.generation.reading_time import ReadingTime


def told(done: list[int], seconds: list[float]) -> list[float | None]:
    """The report at each number of tokens, if the passes between them took this long."""
    times = iter([sum(seconds[:n]) for n in range(len(done))])
    rest = ReadingTime(done[-1], lambda: next(times))
    return [rest.push(tokens) for tokens in done]


def test_with_an_even_pace_the_time_is_exact_once_it_is_known() -> None:
    found = told(list(range(0, 1001, 100)), [3.0, *[0.5] * 9])  # the first pass compiles shaders
    assert found[:3] == [None, None, None]
    assert found[3:] == pytest.approx([3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0])


def test_a_pace_that_slows_down_with_the_length_is_foreseen() -> None:
    done = list(range(0, 2001, 100))
    seconds = [0.1 + 0.00005 * (at + 50) for at in done[:-1]]
    found = told(done, seconds)
    for place, left in enumerate(found[3:], 3):
        assert left == pytest.approx(sum(seconds[place:]))


def test_tokens_that_were_read_before_do_not_count_as_read_at_once() -> None:
    found = told([5000, 5100, 5200, 5300, 5400], [0.5] * 4)
    assert found == [None, None, None, pytest.approx(0.5), 0.0]


def test_it_follows_a_machine_that_becomes_slower_or_faster() -> None:
    done = list(range(0, 2001, 100))
    slower = told(done, [0.5] * 10 + [3.0] * 10)
    assert slower[10] == pytest.approx(5.0)
    assert slower[12:] == pytest.approx([3.0 * (20 - n) for n in range(12, 21)], rel=1.0)
    faster = told(done, [3.0] * 10 + [0.5] * 10)
    assert faster[10] == pytest.approx(30.0)
    assert faster[15:] == pytest.approx([0.5 * (20 - n) for n in range(15, 21)])


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(0, 5)), min_size=1, max_size=30))
def test_none_is_left_at_the_end_and_never_less(passes: list[tuple[int, float]]) -> None:
    done = [0]
    for tokens, _ in passes:
        done.append(done[-1] + tokens)
    found = told(done, [seconds for _, seconds in passes])
    assert all(left >= 0 for left in found if left is not None)
    assert found[-1] == 0
