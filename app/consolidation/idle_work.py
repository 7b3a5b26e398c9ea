"""The work of idle times: learning loops, their progress, and their status for the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from py_core.messages import Message, Words

RUN_EVERY = 600.0
BACKGROUND_POLICY = "learning.background"
"""The user's switch for the background loop: whether it runs in idle times, and whether its adapter is used."""

State = Literal["off", "paused", "battery", "learned", "waiting", "elsewhere", "held", "running", "failed"]


class Report(Protocol):
    def __call__(self, done: int, total: int, what: Words = "") -> None:
        """done, total: tokens; their growth gives the time left. what: the current step, in words that continue
        "Sonata is learning: it "; "" if there is nothing to add."""
        ...


def unheard(done: int, total: int, what: Words = "") -> None:
    """A report that is discarded."""


class IdleWork(Protocol):
    """The work of a loop. Each method may raise an error whose sentence says why the loop cannot continue."""

    async def waiting(self) -> int:
        """Return how many items are not learned yet: lessons, or answers."""
        ...

    async def is_begun(self) -> bool:
        """Return True if the last run was interrupted: the loop then continues, however little there is to learn."""
        ...

    async def run(self, report: Report) -> None:
        """Learn what there is. It may be cancelled anywhere; the next call continues from the saved progress.

        Its engine calls have Priority.IDLE, so that they can be held at any point.
        """
        ...


@dataclass(frozen=True)
class Loop:
    """name: "preparation", "background" or "deep"; the policy learning.NAME switches it. enough: the number
    of waiting items from which it runs; `what` names them, "" if the status does not mention them. every: the least
    number of seconds from the end of a run to the next."""

    name: str
    work: IdleWork
    enough: int
    what: Words
    every: float = RUN_EVERY


class OnlyOne(Protocol):
    """Among all tabs or programs that have the same memory open."""

    async def take(self) -> bool:
        """Return True if this tab or program may learn now."""
        ...

    def release(self) -> None: ...


@dataclass(frozen=True)
class IdleStatus:
    """sentence: for the user. loop: the loop that it is about, "" for all. done, total: tokens of the run.
    seconds_left: None if it is not known yet. what: the current step, from the loop's `Report`."""

    state: State
    sentence: Words
    loop: str = ""
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    what: Words = ""


class Progress:
    """The progress of a run. Its clock counts only the time in which the run was not held."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None
        self._seconds = 0.0
        self._stood_still = 0.0
        self._since: float | None = None
        self.done = self.total = 0
        self.what: Words = ""

    def report(self, done: int, total: int, what: Words = "") -> None:
        now = self._clock() - self._stood_still
        self._first = self._first or (done, now)
        self.done, self.total, self.what, self._seconds = done, total, what, now - self._first[1]

    def stand_still(self) -> None:
        self._since = self._clock()

    def go_on(self) -> None:
        if self._since is not None:
            self._stood_still += self._clock() - self._since
            self._since = None

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds of work left, by the rate so far; None before there is one."""
        if self._first is None or self.done <= self._first[0]:
            return None
        return self._seconds * (self.total - self.done) / (self.done - self._first[0])

    def told_after(self, sentence: Words) -> Words:
        """Return the sentence followed by "40% is done, about 2 minutes left.", if anything is known."""
        if not self.total:
            return sentence
        share, left = f"{self.done / self.total:.0%}", self.seconds_left
        if left is None:
            return Message("idle.done", "{sentence} {share} is done.", sentence=sentence, share=share)
        time = _spoken(left)
        return Message(
            "idle.done-left", "{sentence} {share} is done, {time} left.", sentence=sentence, share=share, time=time
        )


def _spoken(seconds: float) -> Message:
    if seconds < 1.5:
        return Message("idle.second", "about a second")
    if seconds < 90:
        return Message("idle.seconds", "about {count} seconds", count=round(seconds))
    return Message("idle.minutes", "about {count} minutes", count=round(seconds / 60))
