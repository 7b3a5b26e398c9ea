"""Tells from the ids of an answer that it goes in circles, as small models' answers do.

An n-gram that was in the answer at least twice before is a repeat. A score counts repeats and falls by `FRESH_COST`
with each other token, never below 0 (a CUSUM test, Page 1954): it grows only while two thirds of the tokens or more are
repeats. So text that comes back with small changes, as rows of a table with another number in each, counts like text
that comes back unchanged. How the numbers were chosen is in docs/decisions/0005.
"""

from __future__ import annotations

from collections import Counter

NGRAM = 4
"""Tokens in a row that are compared. More miss rows with a small change; fewer come back in any text."""

OCCURRENCES = 2
"""How often an n-gram may come before it is a repeat. Text may be given twice, as code before and after a change."""

FRESH_COST = 2
"""How much a token that repeats nothing lowers the score."""

LOOP_SCORE = 160
"""The score of a loop: so many repeated tokens after the second time. A line of nine tokens may occur twenty times."""


class LoopDetector:
    """Looks at an answer's tokens one after the other. Costs one look-up a token; keeps the answer's n-grams."""

    def __init__(self) -> None:
        self._last: tuple[int, ...] = ()
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._score = self._length = self._begin = 0

    def push(self, token: int) -> int | None:
        """Add a token. If the answer is in a loop now: how many of its tokens come before the third time of it."""
        self._length += 1
        self._last = (*self._last[-(NGRAM - 1) :], token)
        if len(self._last) < NGRAM:
            return None
        repeat = self._counts[self._last] >= OCCURRENCES
        self._counts[self._last] += 1
        if not self._score:
            # Where the n-gram begins that is the first repeat.
            self._begin = self._length - NGRAM
        self._score = max(0, self._score + (1 if repeat else -FRESH_COST))
        return self._begin if self._score >= LOOP_SCORE else None
