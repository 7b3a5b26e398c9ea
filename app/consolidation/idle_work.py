"""What runs in idle times: loops that learn, how far one is, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from py_core.messages import Message, Words

RUN_EVERY = 600.0
BACKGROUND_POLICY = "learning.background"
"""Whether what the background loop learned is used, and whether it runs when nobody waits; the user's switch."""

State = Literal["off", "paused", "battery", "learned", "waiting", "elsewhere", "held", "running", "failed"]


class Report(Protocol):
    def __call__(self, done: int, total: int, what: Words = "") -> None:
        """done, total: tokens; the time left is told by how they grow. what: is done now, in words that go on from
        "Sonata is learning: it "; "" where there is no more to say."""
        ...


def unheard(done: int, total: int, what: Words = "") -> None:
    """The report where nobody listens."""


class IdleWork(Protocol):
    """What a loop does. Each method may raise what says in a sentence why it cannot go on."""

    async def waiting(self) -> int:
        """How much there is to learn that was not learned yet: lessons, or what was lived through."""
        ...

    async def is_begun(self) -> bool:
        """Whether it was ended before it was done: then it goes on, however little there is."""
        ...

    async def run(self, report: Report) -> None:
        """Learn what there is. It may be cancelled anywhere, and goes on from what it kept when it is called again.

        Its calls of the engine have Priority.IDLE, so that it can be held where it stands.
        """
        ...


@dataclass(frozen=True)
class Loop:
    """name: "preparation", "background", "deep" or "style"; the policy learning.NAME switches it. enough: so much has
    to wait for it, of what `what` names, "" if nothing is told of it while it does not run. every: at least so many
    seconds from the end of a run to the next."""

    name: str
    work: IdleWork
    enough: int
    what: Words
    every: float = RUN_EVERY


class OnlyOne(Protocol):
    """Among all tabs or programs that have the same memory open."""

    async def take(self) -> bool:
        """Whether this one may learn now."""
        ...

    def release(self) -> None: ...


@dataclass(frozen=True)
class IdleStatus:
    """sentence: for the user. loop: which one it is about, "" for all. done, total: tokens of the run. seconds_left:
    None where that is not known yet. what: what it does now, as its `Report` tells it."""

    state: State
    sentence: Words
    loop: str = ""
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    what: Words = ""


class Progress:
    """How far a run is, by a clock of which the time counts that it did not stand still."""

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
        """Of work, by the rate so far; None before there is one."""
        if self._first is None or self.done <= self._first[0]:
            return None
        return self._seconds * (self.total - self.done) / (self.done - self._first[0])

    def told_after(self, sentence: Words) -> Words:
        """The sentence with "40% is done, about 2 minutes left.", if anything is known."""
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
    if seconds < 90:
        return Message("idle.seconds", "about {count} seconds", count=max(round(seconds), 1))
    return Message("idle.minutes", "about {count} minutes", count=round(seconds / 60))
