"""Guesses continue the text from an earlier occurrence of its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from py_core.speculation.guesses import (
    LEAST_MATCH,
    MOST_LOOKED_AT,
    MOST_MATCH,
    MOST_TOKENS,
    NEWEST_SHARE,
    SIZES,
    PromptLookup,
)


def expected(tokens: list[int]) -> tuple[int, int]:
    """The newest of the last earlier places with the longest match, by comparing all of them; short ones if there is
    no longer match."""
    last = len(tokens) - 1
    for least in (LEAST_MATCH, 1):
        places = [at for at in range(last) if _alike(tokens, at) >= least]
        lengths = [(_alike(tokens, at), at) for at in places[-MOST_LOOKED_AT:]]
        if lengths:
            most, place = max(lengths)
            return place, most
    return -1, 0


def _alike(tokens: list[int], place: int) -> int:
    length = 0
    while length < min(MOST_MATCH, place + 1) and tokens[place - length] == tokens[len(tokens) - 1 - length]:
        length += 1
    return length


@given(
    tokens=st.lists(st.integers(0, 2), max_size=120), more=st.lists(st.integers(0, 2), max_size=20),
    count=st.integers(0, 9),
)  # fmt: skip
def test_a_guess_is_what_came_after_the_longest_match(tokens: list[int], more: list[int], count: int) -> None:
    guesses = PromptLookup(tokens)
    for token in more:
        guesses.extend([token])
    text = tokens + more
    place, match = expected(text)
    assert guesses.match == match
    if match:
        told = list(text)  # the continuation of such a text, also beyond its end
        for at in range(count):
            told.append(told[place + 1 + at])
        assert guesses.propose(count) == told[len(text) :]


def test_of_a_long_text_the_end_is_looked_through() -> None:
    beginning, rest = [1, 2, 3, 4, 5], list(range(10, 10 + MOST_TOKENS))
    assert PromptLookup([*beginning, *rest, *beginning[:4]]).match == 0
    assert PromptLookup([*beginning, *rest[: -len(beginning) * 2], *beginning[:4]]).match == 4


@given(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=60), more=st.lists(st.integers(0, 1), max_size=60))
def test_a_rehearsal_says_what_guesses_would_have_given(tokens: list[int], more: list[int]) -> None:
    guesses = PromptLookup(tokens)
    rehearsal = guesses.rehearse(dict.fromkeys(SIZES, 1.0))
    for at in range(0, len(more), 7):
        guesses.extend(more[at : at + 7])
    assert rehearsal.seen == len(more)
    gains, left = dict.fromkeys(SIZES, 1.0), list(more)
    text = list(tokens)
    while left:
        lookup = PromptLookup(text)
        guess = lookup.propose(SIZES[-1] - 1) if lookup.match else []
        right = next((at for at, (one, other) in enumerate(zip(guess, left, strict=False)) if one != other), None)
        right = min(len(guess), len(left)) if right is None else right
        if right == len(left):
            break  # the pass would continue
        gains = {size: gain + (min(right + 1, size) - gain) * NEWEST_SHARE for size, gain in gains.items()}
        text, left = text + left[: right + 1], left[right + 1 :]
    assert rehearsal.gains == gains
