"""The number of sequences that share a step follows from the times of steps."""

from __future__ import annotations

from py_core.backends.step_times import MOST_BATCHES, Pace, StepTimes, wants_more


def noted(seconds: dict[int, float]) -> StepTimes:
    times = StepTimes()
    for rows, each in seconds.items():
        times.note(rows, each, each)
        times.note_pace(rows, each)
    return times


def test_what_was_never_tried_is_tried() -> None:
    assert noted({}).rows_that_pay(1) == 1
    assert noted({}).rows_that_pay(5) == 5
    assert noted({1: 0.01}).rows_that_pay(20) == 8


def test_as_many_rows_as_give_the_most_tokens_share_a_step() -> None:
    assert noted({1: 1.0, 8: 2.0}).rows_that_pay(8) == 8
    assert noted({1: 1.0, 2: 4.0, 8: 11.0}).rows_that_pay(8) == 1
    assert noted({1: 1.0, 4: 1.2, 8: 11.0}).rows_that_pay(8) == 4
    assert noted({1: 1.0, 4: 1.2, 8: 11.0}).rows_that_pay(2) == 2
    # Nearly as good is good enough: each change costs a while without work.
    assert noted({1: 1.0, 2: 2.5}).rows_that_pay(2) == 2


def test_what_was_slow_once_is_tried_again_and_believed_again() -> None:
    times = noted({1: 1.0, 2: 4.0})
    batches = 0
    while times.rows_that_pay(2) == 1:
        times.note_pace(1, 1.0)
        batches += 1
    assert 10 < batches < 100
    times.note_pace(2, 4.0)
    assert times.rows_that_pay(2) == 1
    assert times.seconds[2] == 4.0
    while times.rows_that_pay(2) == 1:
        times.note_pace(1, 1.0)
    for _ in range(20):
        times.note_pace(2, 1.2)
    assert times.rows_that_pay(2) == 2


def test_fewer_rows_are_not_tried_because_they_ran_long_ago() -> None:
    times = noted({1: 1.0, 7: 2.0, 8: 2.0})
    for _ in range(500):
        times.note_pace(8, 2.0)
    assert times.rows_that_pay(8) == 8


def test_the_first_batches_say_nothing_of_a_pace_nor_when_two_ends_are_heard_at_once() -> None:
    times = noted({1: 0.010})
    pace = Pace(times, 2)
    for now in (2.0, 3.0, 3.0, 3.048, 3.048, 3.096):  # the first waited for kernels, and the others arrive in pairs
        pace.note(now, 2)
        assert times.rows_that_pay(2) == 2
    for _ in range(3):
        times.note_pace(1, 0.010)
    assert times.rows_that_pay(2) == 2, "12 ms for two are less than 10 for one"
    slow = Pace(times, 2)
    for now in range(30):
        slow.note(0.1 * now, 2)
    assert times.rows_that_pay(2) == 1


def test_so_much_is_in_flight_as_keeps_the_device_at_work() -> None:
    times = noted({1: 0.001, 8: 0.001})
    assert times.batch(8, 0.006) == 6
    assert times.expected(8, 6) == 0.006
    assert wants_more(1, 1.0), "one is worked on, and one waits"
    assert wants_more(2, 0.012)
    assert not wants_more(4, 0.024)
    assert not wants_more(2, 0.04)
    assert not wants_more(MOST_BATCHES, 0.001)
    assert noted({}).expected(1, 1) == noted({}).expected(8, 1) > 0.1, "an unknown device may be the slowest"
