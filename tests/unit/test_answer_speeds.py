"""The speed of answers, from the log."""

from __future__ import annotations

import pytest

from app.memory.answer_speeds import MOST_GROUPS, speed_groups
from py_core.learning.trajectories import Trajectory


def answer(created: float, tokens: int, prefill: float, decode: float, error: str | None = None) -> Trajectory:
    stages = {"embed": 5.0, "prefill": prefill, "decode": decode}
    return Trajectory("a", "", "", stages=stages, new_tokens=tokens, error=error, created=created)


def test_a_group_has_the_median_speed_and_the_waiting_times() -> None:
    entries = [answer(3.0, 50, 95.0, 1000.0), answer(2.0, 20, 45.0, 100.0), answer(1.0, 10, 15.0, 100.0)]
    groups = speed_groups(entries)
    assert [group["created"] for group in groups] == [1.0, 2.0, 3.0]
    assert [group["tokS"] for group in groups] == [100.0, 200.0, 50.0]
    assert [group["first"]["99"] for group in groups] == pytest.approx([20.0, 50.0, 100.0])


def test_many_answers_come_in_few_groups_in_their_order() -> None:
    entries = [answer(float(number), 10, 10.0 + number % 2, 50.0) for number in reversed(range(1000))]
    groups = speed_groups(entries)
    assert len(groups) <= MOST_GROUPS
    assert sum(group["count"] for group in groups) == 1000
    assert [group["created"] for group in groups] == sorted(group["created"] for group in groups)
    assert groups[0]["first"]["50"] == pytest.approx(15.5, abs=0.5)


def test_errors_computed_answers_and_very_short_ones_say_nothing_of_speed() -> None:
    computed = Trajectory("a", "", "", stages={"prefill": 0.0, "decode": 0.0}, created=1.0)
    assert speed_groups([answer(2.0, 10, 1.0, 10.0, "DeviceLostError: gone"), computed]) == []
    assert [group["tokS"] for group in speed_groups([answer(1.0, 1, 10.0, 5.0)])] == [None]
