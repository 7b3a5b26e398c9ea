"""A conversation as a tree: each turn follows another one, and several may follow the same.

    0 user "Hello"
    └ 1 assistant "Hi."
      ├ 2 user "A storry"      after 1
      │ └ 3 assistant "..."
      └ 4 user "A story"       after 1: the message was edited
        ├ 5 assistant "Once"   after 4
        └ 6 assistant "There"  after 4: another answer

A path leads from the first turn to a last one: it is what the model reads and the page shows. Turns that follow the
same one are variants of each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Turn:
    """role: as in chat templates ("user", "assistant"). details: other data of the turn, such as the agent that
    answered.

    number: the turn's number in its conversation, -1 before it has one. after: the number of the turn that it follows,
    which is smaller than its own; None if it is a first turn.
    """

    role: str
    content: str
    created: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    number: int = -1
    after: int | None = None


class Branches:
    """The turns of one conversation. Building this and asking it for a path both cost the same for each turn.

    A turn that follows a lost (damaged) turn counts as following the turn that was stored before the lost one.
    """

    def __init__(self, turns: Iterable[Turn] = (), leaf: int | None = None) -> None:
        """leaf: the last turn of the path that is shown; None: the newest. The path continues to the newest turn below
        it."""
        self._turns = {turn.number: turn for turn in sorted(turns, key=lambda turn: turn.number)}
        self._numbers = list(self._turns)
        self._after = {number: self._known(_before(turn)) for number, turn in self._turns.items()}
        self._followers: dict[int | None, list[int]] = {}
        self._newest: dict[int | None, int] = {}
        for number, after in self._after.items():
            self._followers.setdefault(after, []).append(number)
        for number in reversed(self._numbers):
            after, newest = self._after[number], self._newest.setdefault(number, number)
            self._newest[after] = max(newest, self._newest.get(after, newest))
        self.leaf = self._newest.get(self._known(leaf), self._newest.get(None))
        """The last turn of the path that is shown; None if there are no turns."""

    @property
    def turns(self) -> list[Turn]:
        """All turns, in the order in which they were stored."""
        return list(self._turns.values())

    def __contains__(self, number: object) -> bool:
        return number in self._turns

    def turn(self, number: int) -> Turn | None:
        return self._turns.get(number)

    def path(self, end: int | None = None) -> list[Turn]:
        """The turns from the first to `end`, or to the leaf if `end` is None. Raises KeyError if there is no such
        turn."""
        number, path = self.leaf if end is None else end, list[Turn]()
        while number is not None:
            path.append(self._turns[number])
            number = self._after[number]
        return path[::-1]

    def siblings(self, number: int) -> list[int]:
        """The variants of a turn, including itself, oldest first. Raises KeyError if there is no such turn."""
        return self._followers[self._after[number]]

    def followers(self, number: int) -> list[int]:
        """The turns that come directly after a turn, oldest first."""
        return self._followers.get(number, [])

    def newest_below(self, number: int) -> int:
        """The newest of the turn and all turns that follow it. Raises KeyError if there is no such turn."""
        return self._newest[self._turns[number].number]

    def _known(self, number: int | None) -> int | None:
        """This turn, or the one before it if this one is lost."""
        if number is None or number in self._turns:
            return number
        place = bisect_right(self._numbers, number)
        return self._numbers[place - 1] if place else None


def _before(turn: Turn) -> int | None:
    return None if turn.after is None else min(turn.after, turn.number - 1)
