"""Detects from the ids of an answer that it goes in circles, as small models' answers do.

An n-gram that occurred in the answer at least twice before is a repeat. A score counts repeats and falls by
`FRESH_COST` with each other token, never below 0 (a CUSUM test, Page 1954): it grows only while at least two thirds of
the tokens are repeats. So text that repeats with small changes, as rows of a table with another number in each, counts
like text that repeats unchanged. docs/decisions/0005 explains how the numbers were chosen.
"""

from __future__ import annotations

from collections import Counter

NGRAM = 4
"""Length of the compared n-grams. A longer one misses rows with a small change; a shorter one recurs in any text."""

OCCURRENCES = 2
"""How often an n-gram may occur before it is a repeat. Text may occur twice, as code before and after a change."""

FRESH_COST = 2
"""How much a token that repeats nothing lowers the score."""

LOOP_SCORE = 160
"""The score of a loop: the number of repeated tokens after the second time. A nine-token line may occur 20 times."""


class LoopDetector:
    """Examines an answer's tokens one by one. Costs one look-up a token; keeps the answer's n-grams."""

    def __init__(self) -> None:
        self._last: tuple[int, ...] = ()
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._score = self._length = self._begin = 0

    def push(self, token: int) -> int | None:
        """Add a token. If the answer is in a loop now, return how many of its tokens come before the third
        repetition."""
        self._length += 1
        self._last = (*self._last[-(NGRAM - 1) :], token)
        if len(self._last) < NGRAM:
            return None
        repeat = self._counts[self._last] >= OCCURRENCES
        self._counts[self._last] += 1
        if not self._score:
            # The beginning of the first n-gram that is a repeat.
            self._begin = self._length - NGRAM
        self._score = max(0, self._score + (1 if repeat else -FRESH_COST))
        return self._begin if self._score >= LOOP_SCORE else None
