"""Decides which source guesses the next tokens, and how many, so that no guess costs more than it gains.

There are two sources: earlier text (guesses.py), which costs nothing, and a draft model, which has to read the text and
decode its guesses. For each source it records how often it was right, and for passes how long they take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.sampling import SamplingParams
from py_core.speculation.guesses import LEAST_MATCH, MOST_MATCH, NEWEST_SHARE, SIZES

DRAFT = 0
"""The kind of a draft model's guesses. Other kinds are guesses after matches of about this number of tokens."""

_FIRST_BELIEF = 0.75
"""The assumed probability that a guess is right, before any guess was made."""

_LEAST_GAIN = 1.1
"""The factor by which a guess must promise to raise the tokens per second."""

_FORGETTING = 0.01
"""The share of past wrong guesses that each token makes it forget: a text may begin to repeat itself."""

_PER_ROW = 0.1
"""The assumed cost of another row, in steps, before passes with this number of rows were timed."""

_LEAST_TIMED = 2
"""The number of passes with the same number of rows before their time is trusted. The first pass may wait for its
kernels to be compiled, and if that made it seem slow, no other pass would follow to correct this."""

_DRAFT_STEP, _DRAFT_READING = 0.25, 0.05
"""The assumed costs, in steps, of a token that a draft model decodes, and of a token that it reads, before any
timing."""

_GOES_ON = 256
"""The number of tokens, if still wanted, within which the draft model's reading must pay."""

_FOR_TRIALS = 0.01
"""The share of the time of plain steps that may go into trying a draft model again that did not pay."""

_MOST_FOR_TRIALS = 1.0
"""The most seconds of that time that are saved up."""


@dataclass(frozen=True)
class Drafted:
    """A draft model's guesses, and their cost: the seconds for `read` tokens that it had to read first, and those for
    the guesses. There are no guesses if there is more to read."""

    tokens: list[int]
    read: int = 0
    read_seconds: float = 0.0
    seconds: float = 0.0


class Drafter(Protocol):
    """Guesses how one sequence continues, with a model of its own (engine/draft.py)."""

    def unread(self, tokens: Sequence[int]) -> int | None:
        """The number of the sequence's tokens that it has to read first; None if it has no room, or has failed."""
        ...

    async def propose(self, tokens: Sequence[int], count: int, sampling: SamplingParams) -> Drafted:
        """Guess up to `count` tokens that may follow these, sampled by these rules."""
        ...

    def judge(self, guessed: int, right: int) -> None:
        """Note that `right` of a pass's `guessed` guesses were right."""
        ...


@dataclass(frozen=True)
class GuessPlan:
    """The next pass's guesses: their kind, and the pass's rows, one more than there are guesses."""

    kind: int
    rows: int
    is_trial: bool = False
    """True if the guess promises no gain and is made to test if that is still so."""


def kind_of(match: int) -> int:
    """The kind of a match: matches of one kind are worth about the same."""
    return min(match, 2 * LEAST_MATCH) if match < 2 * LEAST_MATCH else MOST_MATCH if match >= 16 else 2 * LEAST_MATCH


class Lookahead:
    """Statistics of the passes and guesses of one backend."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """The seconds of a pass, including everything that belongs to it, by its number of rows."""
        self._timed = Counter[int]()
        """The number of passes by their number of rows."""
        self._belief: dict[int, float] = {}
        """The probability that a guess is right, by its kind."""
        self._draft_step: float | None = None
        self._draft_reading: float | None = None
        """The seconds of a token that the draft model decodes, and of a token that it reads."""
        self._for_trials = 0.0
        """The seconds that may go into a trial."""

    def plan(self, match: int, unread: int | None, step: float, left: int, most: int) -> GuessPlan | None:
        """The best way to guess in the next pass; None for a plain step.

        match: the number of tokens at the end that occurred before, 0 if that gives no guess. unread: the number of
        tokens that a draft model would have to read first; None if there is no draft model. step: seconds of a token
        without guesses. left: tokens that are still wanted. most: the most rows that there is room for.
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
        """A trial of a draft model that does not seem to pay, if there are enough seconds for it. The guesses should
        take no longer than the reading before them, or be as few as possible."""
        costs = {size: self._guessing(size, step) for size in sizes}
        rows = max((size for size in sizes if costs[size] <= reading), default=sizes[0])
        return GuessPlan(DRAFT, rows, is_trial=True) if self._for_trials >= reading + costs[rows] else None

    def note(self, kind: int, rows: int, right: int, seconds: float) -> None:
        """Note that a pass of `rows` rows took `seconds`, and that `right` of its guesses, of this kind, were right."""
        self._timed[rows] += 1
        known = self._seconds.get(rows, seconds)
        is_believed = self._timed[rows] > _LEAST_TIMED
        self._seconds[rows] = known + (seconds - known) * NEWEST_SHARE if is_believed else min(known, seconds)
        tried = min(right + 1, rows - 1)  # tokens after a wrong one tell nothing
        belief = self._belief.get(kind, _FIRST_BELIEF)
        weight = 1 - (1 - NEWEST_SHARE / 2) ** tried
        self._belief[kind] = min(belief + (right / tried - belief) * weight, 0.99)

    def note_drafted(self, drafted: Drafted, is_trial: bool) -> None:
        """Note the cost of a draft model that was asked, in a trial or because it promised a gain."""
        if drafted.read:
            self._draft_reading = _newer(self._draft_reading, drafted.read_seconds / drafted.read)
        if drafted.tokens:
            self._draft_step = _newer(self._draft_step, drafted.seconds / len(drafted.tokens))
        if is_trial:
            self._for_trials = max(0.0, self._for_trials - drafted.read_seconds - drafted.seconds)

    def note_plain(self, tokens: int, seconds: float = 0.0) -> None:
        """Note that `tokens` tokens were sampled without a guess in `seconds`."""
        for kind, belief in self._belief.items():
            # A draft model has another rule: a trial must be paid for, and costs more if there is text to read first.
            if belief < _FIRST_BELIEF and kind != DRAFT:
                self._belief[kind] = belief + (_FIRST_BELIEF - belief) * (1 - (1 - _FORGETTING) ** tokens)
        self._for_trials = min(_MOST_FOR_TRIALS, self._for_trials + _FOR_TRIALS * seconds)

    def _seconds_a_token(self, kind: int, rows: int, step: float) -> float:
        """The probable seconds per token of a pass with `rows` rows."""
        belief = self._belief.get(kind, _FIRST_BELIEF)
        is_known = self._timed[rows] >= _LEAST_TIMED
        seconds = self._seconds[rows] if is_known else step * (1 + _PER_ROW * (rows - 1))
        if kind == DRAFT:
            seconds += self._guessing(rows, step)
        return seconds * (1 - belief) / (1 - belief**rows)

    def _guessing(self, rows: int, step: float) -> float:
        """The seconds that a draft model needs to guess for a pass of `rows` rows."""
        return (rows - 1) * (_DRAFT_STEP * step if self._draft_step is None else self._draft_step)

    def _reading(self, tokens: int, step: float) -> float:
        """The seconds that a draft model needs to read `tokens` tokens."""
        return tokens * (_DRAFT_READING * step if self._draft_reading is None else self._draft_reading)


def _newer(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + (seconds - known) * NEWEST_SHARE
