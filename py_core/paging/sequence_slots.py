"""More sequences than slots: who works has one, and who waits gives his up to who needs it.

A slot is a sequence's row of the page table, and its history. A sequence without one holds its tokens only; what it had
read is kept among the pages that others may begin with (prefix_cache.py) as long as there is room. When it goes on it
takes a slot and what is left of that again, and reads the rest. So any number of conversations can be open, and each
says what it would say alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from py_core.backends.base import NO_SLOT, TokenSequence
from py_core.models.graph import Graph
from py_core.paging.prefix_cache import PrefixCache

SLOTS = 32
"""Sequences with a slot at a time: four times as many as a step has rows. Each takes 4 KB."""


class SequenceSlots(PrefixCache):
    """What `PipelinedBackend` shares."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._free_slots = list(range(SLOTS))[::-1]
        self._in_slots: dict[int, TokenSequence] = {}
        """By their numbers, first those who have not worked for the longest time."""
        self._at_work: Collection[int] = ()
        """The numbers of those whose steps or pass came last: they may be under way."""
        self._numbered = 0

    @abstractmethod
    def truncate(self, sequence: TokenSequence, length: int) -> None: ...

    @abstractmethod
    def _release(self, slot: int, length: int) -> None:
        """Give back the pages that only positions from `length` on use."""

    def new_sequence(self) -> TokenSequence:
        self._numbered += 1
        sequence = self._sequences[self._numbered] = TokenSequence(self._numbered)
        return sequence

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        self._take_slot(sequence)
        return super().begin_with(sequence, tokens)

    def free(self, sequence: TokenSequence) -> None:
        self.truncate(sequence, 0)
        del self._sequences[sequence.number]
        self._leave_slot(sequence)

    def _put_to_work(self, sequences: Sequence[TokenSequence], rows: int = 1) -> None:
        """What runs next is for these: each has a slot then, until others are put to work. Whoever gets one now has its
        last `rows` tokens to run, at least."""
        self._at_work = {sequence.number for sequence in sequences}
        for sequence in sequences:
            self._take_slot(sequence, rows)

    def _take_slot(self, sequence: TokenSequence, rows: int = 1) -> None:
        """The sequence has a slot now, and those of its pages that are kept still."""
        if sequence.slot == NO_SLOT:
            if not self._free_slots:
                self._send_away(next(one for one in self._in_slots.values() if one.number not in self._at_work))
            sequence.slot = self._free_slots.pop()
            self._take_kept_pages(sequence, rows)
        self._in_slots.pop(sequence.number, None)
        self._in_slots[sequence.number] = sequence

    def _send_away(self, sequence: TokenSequence) -> None:
        """The sequence gives up its slot, and its pages to whoever needs room."""
        self._keep_prefix(sequence)
        self._rewind(sequence, 0)
        self._release(sequence.slot, 0)
        self._leave_slot(sequence)

    def _leave_slot(self, sequence: TokenSequence) -> None:
        if self._in_slots.pop(sequence.number, None):
            self._free_slots.append(sequence.slot)
            sequence.slot = NO_SLOT

    def _make_room(self, slot: int, first: int, length: int, most: int | None = None) -> bool:
        """As `PrefixCache._make_room`; where memory is out (`most` is 0), those who wait give their pages up: what is
        let go then depends on who needed it last. Of pages that are not kept, only those of who waits for the longest
        time, where nothing else is left. At last the sequence writes where others could have begun."""
        table = self._shared_table
        if most is None and (table is None or table.grown() > table.capacity):
            return super()._make_room(slot, first, length)
        if table is not None and not table.lacks(slot, first, length):
            return False
        waiting = self._waiting(slot)
        for one in waiting if table else ():
            if one.shares:
                self._send_away(one)
        if super()._make_room(slot, first, length, most=0):
            return True
        if left := [one for one in waiting if one.stored]:
            self._send_away(left[0])
        return bool(waiting) or self._let_go_of_own(slot, first, length)

    def _waiting(self, slot: int = NO_SLOT) -> list[TokenSequence]:
        """Those with pages who are not at work, but for who has this slot; first who waits for the longest time."""
        return [
            one for one in self._in_slots.values()
            if one.stored and one.slot != slot and one.number not in self._at_work
        ]  # fmt: skip
