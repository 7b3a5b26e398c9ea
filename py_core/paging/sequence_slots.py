"""There are more sequences than slots. A running sequence has one, and a waiting sequence gives its slot up on demand.

A slot is a sequence's row of the page table, and its history. A sequence without a slot holds only its tokens. Its
pages are kept among those that other sequences may begin with (prefix_cache.py) as long as there is room. When it
continues, it takes a slot and its remaining pages again, and reads the rest. So any number of conversations can be
open, and each gives the same answers as it would alone.
"""

from __future__ import annotations

from collections.abc import Collection

from py_core.token_sequence import NO_SLOT, TokenSequence

SLOTS = 32
"""Sequences with a slot at a time: four times the rows of a step. Each slot takes 4 KB."""


class SequenceSlots:
    """Records which sequence has which slot."""

    def __init__(self) -> None:
        self.free = list(range(SLOTS))[::-1]
        self.taken: dict[int, TokenSequence] = {}
        """The sequences with slots by their numbers, the longest idle first."""
        self.at_work: Collection[int] = ()
        """The numbers of the sequences of the latest steps or pass, which may be under way."""

    def take(self, sequence: TokenSequence) -> None:
        """Give a slot to a sequence that has none. There must be a free slot."""
        sequence.slot = self.free.pop()
        self.taken[sequence.number] = sequence

    def use(self, sequence: TokenSequence) -> None:
        """Mark the sequence, which has a slot, as running now."""
        self.taken[sequence.number] = self.taken.pop(sequence.number)

    def leave(self, sequence: TokenSequence) -> None:
        """Take the slot from the sequence, if it has one."""
        if self.taken.pop(sequence.number, None):
            self.free.append(sequence.slot)
            sequence.slot = NO_SLOT

    def longest_idle(self) -> TokenSequence:
        """The sequence with a slot that is not at work and has been idle longest."""
        return next(one for one in self.taken.values() if one.number not in self.at_work)

    def waiting(self, slot: int = NO_SLOT) -> list[TokenSequence]:
        """Sequences with pages that are not at work, except the sequence in `slot`; the longest waiting first."""
        return [
            one for one in self.taken.values() if one.stored and one.slot != slot and one.number not in self.at_work
        ]
