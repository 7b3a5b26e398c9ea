"""Who guesses the next tokens, and how many, so that no guess costs more than it is worth.

Two can guess: what was there before in the text (speculation.py), which costs nothing, and a draft model, which has to
read the text and to decode its guesses. Of each it is known how often it was right, of passes what they take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.sampling import SamplingParams
from py_core.speculation.guesses import LEAST_MATCH, MOST_MATCH, NEWEST_SHARE, SIZES

DRAFT = 0
"""The kind of guesses that a draft model makes. Others are those after matches of about so many tokens."""

_FIRST_BELIEF = 0.75
"""How likely a guess is right, before there was one."""

_LEAST_GAIN = 1.1
"""Times as many tokens a second that a guess must promise."""

_FORGETTING = 0.01
"""Of how wrong guesses were, so much is forgotten with each token: a text may change to one that repeats itself."""

_PER_ROW = 0.1
"""What a row more costs, in steps, before passes of so many rows were timed."""

_LEAST_TIMED = 2
"""Passes of so many rows before it is believed what they take: the first may wait for its kernels to be compiled, and
where that made it slow there would be no other to say so."""

_DRAFT_STEP, _DRAFT_READING = 0.25, 0.05
"""What a token that a draft model decodes, or reads, costs in steps, before it was timed."""

_GOES_ON = 256
"""Tokens over which what a draft model has to read first must pay, if so many are wanted still."""

_FOR_TRIALS = 0.01
"""Of the time of plain steps, so much may go into trying again a draft model that did not pay."""

_MOST_FOR_TRIALS = 1.0
"""Seconds of that which are saved up."""


@dataclass(frozen=True)
class Drafted:
    """What a draft model guessed, and what that took: seconds of `read` tokens that it had to read first, and of its
    guesses. Without guesses where there is more to read."""

    tokens: list[int]
    read: int = 0
    read_seconds: float = 0.0
    seconds: float = 0.0


class Drafter(Protocol):
    """Guesses what one sequence goes on with, by a model of its own (speculation/draft.py)."""

    def unread(self, tokens: Sequence[int]) -> int | None:
        """How many of the sequence's tokens it has to read first; None where it has no room, or does not work."""
        ...

    async def propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        """Up to `count` tokens that may follow these, sampled by these rules."""
        ...

    def judge(self, guessed: int, right: int) -> None:
        """Of a pass's guesses so many were right."""
        ...


@dataclass(frozen=True)
class GuessPlan:
    """How the next pass guesses: the kind of guesses, and its rows, one more than there are guesses."""

    kind: int
    rows: int
    is_trial: bool = False
    """Whether it is made although it promises nothing, to learn whether that is still so."""


def kind_of(match: int) -> int:
    """Matches that are worth about the same."""
    return min(match, 2 * LEAST_MATCH) if match < 2 * LEAST_MATCH else MOST_MATCH if match >= 16 else 2 * LEAST_MATCH


class Lookahead:
    """What is known of passes and guesses. Of one backend."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """Of a pass of so many rows, with all that belongs to it."""
        self._timed = Counter[int]()
        """Passes of so many rows."""
        self._belief: dict[int, float] = {}
        """How likely a guess is right, by its kind."""
        self._draft_step: float | None = None
        self._draft_reading: float | None = None
        """Seconds of a token that the draft model decodes, and reads."""
        self._for_trials = 0.0
        """Seconds that may go into a trial."""

    def plan(self, match: int, unread: int | None, step: float, left: int, most: int) -> GuessPlan | None:
        """How the next pass had best guess; None for a plain step.

        match: so many tokens at the end were there before, 0 where that makes no guess. unread: so many tokens a draft
        model would have to read first; None where there is none. step: seconds that a token takes without. left: tokens
        that are wanted still. most: rows that there is room for.
        """
        sizes = [size for size in SIZES if size <= most]
        options = [(self._seconds_a_token(kind_of(match), size, step), kind_of(match), size) for size in sizes if match]
        if unread is not None:
            first = self._reading(unread, step) / max(1, min(left, _GOES_ON))
            options += [(self._seconds_a_token(DRAFT, size, step) + first, DRAFT, size) for size in sizes]
        if not options:
            return None
        seconds, kind, rows = min(options)
        if seconds * _LEAST_GAIN < step:
            return GuessPlan(kind, rows)
        return None if unread is None else self._trial(self._reading(unread, step), sizes, step)

    def _trial(self, reading: float, sizes: Sequence[int], step: float) -> GuessPlan | None:
        """One of a draft model that does not seem to pay, where there are the seconds for it. Guesses should take no
        longer than what it reads first, or be as few as can be."""
        costs = {size: self._guessing(size, step) for size in sizes}
        rows = max((size for size in sizes if costs[size] <= reading), default=sizes[0])
        return GuessPlan(DRAFT, rows, is_trial=True) if self._for_trials >= reading + costs[rows] else None

    def note(self, kind: int, rows: int, right: int, seconds: float) -> None:
        """A pass of so many rows took so long, and so many of its guesses, which are of this kind, were right."""
        self._timed[rows] += 1
        known = self._seconds.get(rows, seconds)
        is_believed = self._timed[rows] > _LEAST_TIMED
        self._seconds[rows] = known + (seconds - known) * NEWEST_SHARE if is_believed else min(known, seconds)
        tried = min(right + 1, rows - 1)  # what lies behind a wrong one says nothing
        belief = self._belief.get(kind, _FIRST_BELIEF)
        weight = 1 - (1 - NEWEST_SHARE / 2) ** tried
        self._belief[kind] = min(belief + (right / tried - belief) * weight, 0.99)

    def note_drafted(self, drafted: Drafted, is_trial: bool) -> None:
        """A draft model was asked, in a trial or because that promised something."""
        if drafted.read:
            self._draft_reading = _newer(self._draft_reading, drafted.read_seconds / drafted.read)
        if drafted.tokens:
            self._draft_step = _newer(self._draft_step, drafted.seconds / len(drafted.tokens))
        if is_trial:
            self._for_trials = max(0.0, self._for_trials - drafted.read_seconds - drafted.seconds)

    def note_plain(self, tokens: int, seconds: float = 0.0) -> None:
        """So many tokens were sampled without a guess, in so many seconds."""
        for kind, belief in self._belief.items():
            # A draft model is tried again for what that costs, which is more where it has to read first.
            if belief < _FIRST_BELIEF and kind != DRAFT:
                self._belief[kind] = belief + (_FIRST_BELIEF - belief) * (1 - (1 - _FORGETTING) ** tokens)
        self._for_trials = min(_MOST_FOR_TRIALS, self._for_trials + _FOR_TRIALS * seconds)

    def _seconds_a_token(self, kind: int, rows: int, step: float) -> float:
        """What a token of a pass with so many rows probably takes."""
        belief = self._belief.get(kind, _FIRST_BELIEF)
        is_known = self._timed[rows] >= _LEAST_TIMED
        seconds = self._seconds[rows] if is_known else step * (1 + _PER_ROW * (rows - 1))
        if kind == DRAFT:
            seconds += self._guessing(rows, step)
        return seconds * (1 - belief) / (1 - belief**rows)

    def _guessing(self, rows: int, step: float) -> float:
        """Seconds in which a draft model guesses for a pass of so many rows."""
        return (rows - 1) * (_DRAFT_STEP * step if self._draft_step is None else self._draft_step)

    def _reading(self, tokens: int, step: float) -> float:
        """Seconds in which it reads so many tokens."""
        return tokens * (_DRAFT_READING * step if self._draft_reading is None else self._draft_reading)


def _newer(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + (seconds - known) * NEWEST_SHARE
