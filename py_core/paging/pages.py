"""Tracks what each sequence holds on the device: pages of keys and values, a slot, and the logits after its last token.

`Pages` consists of the page table, the prefixes that sequences share, slots, the budget and tiers. It moves pages
between them; anything that it does to memory goes through the backend's `PageStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_core.backend_errors import BackendError
from py_core.paging.memory_budget import MemoryBudget
from py_core.paging.page_store import PageStore
from py_core.paging.page_table import PAGE, PageTable
from py_core.paging.prefix_cache import PrefixCache
from py_core.paging.radix_tree import LEAST_COPIED
from py_core.paging.sequence_slots import SequenceSlots
from py_core.paging.tiers import TierPolicy
from py_core.token_sequence import NO_SLOT, TokenSequence


class Pages:
    """The pages of one backend. `held`: how many bytes the device holds in total. tiers: None keeps all pages hot."""

    def __init__(self, store: PageStore, held: Callable[[], int], tiers: TierPolicy | None = None) -> None:
        self.sequences: dict[int, TokenSequence] = {}
        """The sequences by their numbers."""
        self.slots = SequenceSlots()
        self.budget = MemoryBudget(held)
        self.logits_of: TokenSequence | None = None
        """The sequence whose logits after its last token are on the device."""
        self._tiers = tiers
        self._numbered = 0
        self.place(store)

    def place(self, store: PageStore) -> None:
        """Use this store for the pages from now on. It holds nothing yet."""
        self.store = store
        self.table: PageTable | None = store.shared_table
        """The page table of all layers, whose pages sequences share; None if they share none."""
        self.prefixes = PrefixCache(self.table) if self.table else None

    def forget(self) -> None:
        """Forget the content of all pages: it is lost."""
        self.place(self.store)
        for sequence in self.sequences.values():
            sequence.stored = 0  # before others wait: code that is told to stop meanwhile looks for its pages

    def new_sequence(self) -> TokenSequence:
        """Return an empty sequence, which takes a slot when it needs one."""
        self._numbered += 1
        sequence = self.sequences[self._numbered] = TokenSequence(self._numbered)
        return sequence

    def free(self, sequence: TokenSequence) -> None:
        """Give back everything that the sequence has. The sequence is gone afterwards."""
        self.truncate(sequence, 0)
        del self.sequences[sequence.number]
        self.slots.leave(sequence)

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        """See `Runs.truncate`."""
        if length < sequence.length:
            self.keep_prefix(sequence)
        del sequence.tokens[length:]
        # The last token runs again because its logits are gone.
        self.rewind(sequence, max(length - 1, 0))
        if sequence.slot != NO_SLOT:
            self.store.release(sequence.slot, sequence.stored)

    def rewind(self, sequence: TokenSequence, stored: int) -> None:
        """Run everything after the first `stored` tokens again; all tokens if what they see was given back
        meanwhile."""
        if self.logits_of is sequence:
            self.logits_of = None
        sequence.stored = min(sequence.stored, stored)
        if sequence.slot == NO_SLOT:
            return
        if not self.store.sees(sequence.slot, sequence.stored):
            sequence.stored = 0
        elif self.table:
            sequence.stored = self.table.whole(sequence.slot, sequence.stored)
        if not sequence.stored:  # otherwise a sequence that no longer needs its pages would hold them
            self.store.release(sequence.slot, 0)

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        """See `HasPages.begin_with`."""
        self.take_slot(sequence)
        if self.prefixes is None or not sequence.shares or sequence.tokens != list(tokens[: sequence.length]):
            return sequence.length
        pages, found = self.prefixes.match(sequence.adapter, tokens[: len(tokens) - 1])
        if self.table is None or found < sequence.stored + LEAST_COPIED:
            return sequence.length
        self.rewind(sequence, 0)
        self.table.release(sequence.slot, 0)
        self.table.adopt(sequence.slot, pages)
        sequence.tokens, sequence.stored = list(tokens[:found]), found
        return found

    def keep_prefix(self, sequence: TokenSequence, ends: bool = True) -> None:
        """Keep the sequence's pages for sequences with the same beginning. `ends`: True if the sequence will not write
        to its last page any more, which may have room, because it forgets tokens."""
        if self.prefixes and sequence.shares and sequence.slot != NO_SLOT:
            self.prefixes.keep(sequence, sequence.stored if ends else sequence.stored // PAGE * PAGE)

    def put_to_work(self, sequences: Sequence[TokenSequence], rows: int = 1) -> None:
        """Give a slot to each of these sequences, which run next. They keep it until others are put to work. A sequence
        that gets its slot now has at least its last `rows` tokens to run."""
        self.slots.at_work = {sequence.number for sequence in sequences}
        for sequence in sequences:
            self.take_slot(sequence, rows)
        if self.table:
            self.table.at_work = {sequence.slot for sequence in sequences}
            for sequence in sequences:
                # Steps that nobody waited for may have overwritten rows of convolutions.
                sequence.stored = self.table.whole(sequence.slot, sequence.stored)

    def take_slot(self, sequence: TokenSequence, rows: int = 1) -> None:
        """Give the sequence a slot, and those of its pages that are still kept."""
        if sequence.slot == NO_SLOT:
            if not self.slots.free:
                self.send_away(self.slots.longest_idle())
            self.slots.take(sequence)
            if self.prefixes and sequence.shares:
                self.prefixes.take(sequence, rows)
        self.slots.use(sequence)

    def send_away(self, sequence: TokenSequence) -> None:
        """Take the slot from the sequence. Its pages are free for sequences that need room."""
        self.keep_prefix(sequence)
        self.rewind(sequence, 0)
        self.store.release(sequence.slot, 0)
        self.slots.leave(sequence)

    async def reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence has pages for positions first .. length - 1; the positions before `first` are
        stored.

        Raises BackendError if memory runs out and no sequence has pages to give up.
        """
        while True:
            try:
                if aged := self.table.aged(slot, first, self._tiers) if self.table and self._tiers else ():
                    await self.store.demote(aged, self._renamed)
                self._make_room(slot, first, length)
                return await self.store.reserve(slot, first, length)
            except BackendError:
                if not self._make_room(slot, first, length, most=0):
                    raise

    async def fit(self, more: int = 0) -> None:
        """Stay within the budget if something else takes `more` bytes now."""
        self.budget.apply(self.store, more)
        table = self.store.limited
        if table is None or table.capacity <= table.most:
            return
        while table.capacity - table.free > table.most and self._give_way():
            pass
        for page, new in (await self.store.shrink(max(table.most, table.capacity - table.free))).items():
            self._renamed(page, new)

    def let_go(self) -> bool:
        """Drop an unused page. Return False if there was none."""
        return self.prefixes is not None and self.prefixes.let_go()

    async def export_page(self, adapter: int, tokens: Sequence[int]) -> bytes | None:
        """See `HasPages.export_page`."""
        if self.prefixes is None or self.table is None or self.table.states:
            return None  # states are too large to leave the device, and pages are of no use without them
        page = self.prefixes.last_page(adapter, tokens)
        return None if page is None else await self.store.read_page(page)

    async def import_pages(self, sequence: TokenSequence, tokens: Sequence[int], pages: Sequence[bytes]) -> bool:
        """See `HasPages.import_pages`. Raises BackendError if memory runs out."""
        first = len(tokens) - PAGE * len(pages)
        if self.table is None or self.table.states or not sequence.shares or not pages or len(tokens) % PAGE:
            return False
        if sequence.tokens[: len(tokens)] != list(tokens[: sequence.length]):
            return False
        self.put_to_work([sequence])
        if sequence.stored < first:
            return False
        self.rewind(sequence, first)
        self.store.release(sequence.slot, first)
        await self.reserve(sequence.slot, first, len(tokens))
        for page, data in zip(self.table.held(sequence.slot)[first // PAGE :], pages, strict=True):
            await self.store.write_page(page, data)
        # A sequence that gave its pages up holds tokens after these; they run again.
        sequence.tokens[: len(tokens)], sequence.stored = tokens, len(tokens)
        self.keep_prefix(sequence, ends=False)
        return True

    def _make_room(self, slot: int, first: int, length: int, most: int | None = None) -> bool:
        """Drop unused pages. Return True if there is more room afterwards.

        If memory is out (`most` is 0), waiting sequences give their pages up. Which pages are dropped then depends on
        how recently they were used. Pages of a sequence that shares none are lost: if nothing else is left, the longest
        waiting of these sequences gives its pages up. As a last resort the sequence writes to pages that other
        sequences could have begun with.
        """
        limited, table, prefixes = self.store.limited, self.table, self.prefixes
        if limited is not None and limited.lacks(slot, first, length):
            self.budget.apply(self.store)
        if most is None and (table is None or table.grown() > table.capacity):
            return prefixes is not None and prefixes.make_room(slot, first, length)
        if table is not None and not table.lacks(slot, first, length):
            return False
        waiting = self.slots.waiting(slot)
        for one in waiting if table else ():
            if one.shares:
                self.send_away(one)
        if prefixes and prefixes.make_room(slot, first, length, most=0):
            return True
        if left := [one for one in waiting if one.stored]:
            self.send_away(left[0])
        return bool(waiting) or (prefixes is not None and prefixes.let_go_of_own(slot, first, length))

    def _give_way(self) -> bool:
        """Drop an unused page, or otherwise those of a waiting sequence. Return False if there were none."""
        if self.let_go():
            return True
        for one in self.slots.waiting()[:1]:
            self.send_away(one)
            return True
        return False

    def _renamed(self, page: int, new: int) -> None:
        if self.prefixes:
            self.prefixes.tree.rename(page, new)
