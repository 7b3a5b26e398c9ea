"""More sequences than slots: a running sequence has one, and a waiting sequence gives its slot up if another needs it.

A slot is a sequence's row of the page table, and its history. A sequence without one holds its tokens only; what it had
read is kept among the pages that others may begin with (prefix_cache.py) as long as there is room. When it goes on it
takes a slot and what is left of that again, and reads the rest. So any number of conversations can be open, and each
says what it would say alone.
"""

from __future__ import annotations

from collections.abc import Collection

from py_core.backends.base import NO_SLOT, TokenSequence

SLOTS = 32
"""Sequences with a slot at a time: four times as many as a step has rows. Each takes 4 KB."""


class SequenceSlots:
    """Which sequence has which slot."""

    def __init__(self) -> None:
        self.free = list(range(SLOTS))[::-1]
        self.taken: dict[int, TokenSequence] = {}
        """By their sequences' numbers, first those who have not worked for the longest time."""
        self.at_work: Collection[int] = ()
        """The numbers of those whose steps or pass came last: they may be under way."""

    def take(self, sequence: TokenSequence) -> None:
        """Give a slot to a sequence that has none. One must be free."""
        sequence.slot = self.free.pop()
        self.taken[sequence.number] = sequence

    def use(self, sequence: TokenSequence) -> None:
        """The sequence, which has a slot, works now."""
        self.taken[sequence.number] = self.taken.pop(sequence.number)

    def leave(self, sequence: TokenSequence) -> None:
        """The sequence has no slot any more, if it had one."""
        if self.taken.pop(sequence.number, None):
            self.free.append(sequence.slot)
            sequence.slot = NO_SLOT

    def longest_idle(self) -> TokenSequence:
        """The sequence with a slot that is not at work, and has not been for the longest time."""
        return next(one for one in self.taken.values() if one.number not in self.at_work)

    def waiting(self, slot: int = NO_SLOT) -> list[TokenSequence]:
        """Sequences with pages that are not at work, except that with this slot; the longest waiting first."""
        return [
            one for one in self.taken.values() if one.stored and one.slot != slot and one.number not in self.at_work
        ]
