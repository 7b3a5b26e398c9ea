"""Passes with guesses are submitted depending on the tokens that guesses would have gained, and on the cost of
passes."""

from __future__ import annotations

from py_core.backends.webgpu.device_guesses import DeviceGuesses
from py_core.speculation.guesses import SIZES, PromptLookup

STEP = 1.0
LONG = list(range(200))


def answered(guesses: DeviceGuesses, answer: list[int], text: list[int] = LONG) -> PromptLookup:
    """An answer to a text, in pieces as they arrive."""
    lookup = PromptLookup(text)
    guesses.rehearsal(lookup)
    for at in range(0, len(answer), 5):
        lookup.extend(answer[at : at + 5])
        guesses.judge(lookup, STEP)
    return lookup


def rows_after(guesses: DeviceGuesses, answer: list[int], text: list[int] = LONG, most: int = 8) -> int:
    lookup = answered(guesses, answer, text)
    return guesses.rows_that_pay(guesses.rehearsal(lookup), STEP, most)


def knows_costs() -> DeviceGuesses:
    guesses = DeviceGuesses()
    for rows in SIZES:
        guesses.times.note(rows, 2 * STEP, 2 * STEP)
    return guesses


def test_nothing_is_guessed_before_it_is_known_what_a_step_takes() -> None:
    guesses = knows_costs()
    assert guesses.rows_that_pay(guesses.rehearsal(PromptLookup(LONG)), None, 8) == 1


def test_an_answer_to_a_long_text_begins_with_guesses_and_one_to_a_short_text_does_not() -> None:
    assert rows_after(knows_costs(), []) == 8
    assert rows_after(knows_costs(), [], LONG[:50]) == 1


def test_what_says_something_again_is_guessed_and_what_does_not_is_not() -> None:
    assert rows_after(knows_costs(), LONG[20:60]) == 8
    assert rows_after(knows_costs(), LONG[20:60], [*LONG[:60]]) == 8, "a short text, too, once something was said again"
    assert rows_after(knows_costs(), list(range(500, 540))) == 1
    assert rows_after(knows_costs(), [*range(500, 540), *LONG[20:60]]) == 8
    assert rows_after(knows_costs(), [*LONG[20:60], *range(500, 540)]) == 1


def test_passes_that_cost_as_much_as_their_tokens_are_not_made() -> None:
    guesses = DeviceGuesses()
    for rows in SIZES:
        guesses.times.note(rows, rows * STEP, rows * STEP)
    assert rows_after(guesses, LONG[20:60]) == 1
    guesses.times.note(4, 0.0, 0.0)
    guesses.times.note(4, 0.0, 0.0)
    assert rows_after(guesses, LONG[20:60]) == 4


def test_there_are_no_more_rows_than_have_room() -> None:
    assert rows_after(knows_costs(), LONG[20:60], most=7) == 4
    assert rows_after(knows_costs(), LONG[20:60], most=1) == 1


def test_where_beginnings_did_not_pay_of_late_answers_begin_without_guesses_until_they_would_have() -> None:
    guesses = knows_costs()
    for _ in range(6):
        answered(guesses, list(range(500, 540)))
    assert rows_after(guesses, []) == 1
    answered(guesses, LONG[20:60])
    assert rows_after(guesses, []) == 8
