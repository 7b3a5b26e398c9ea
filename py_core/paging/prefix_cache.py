"""Sequences with the same beginning share its pages: the same on every backend that has a page table.

Pages are kept when a prompt is read, and when a sequence forgets tokens or ends. In these two cases the last page is
kept, too, although it may have room. A sequence that writes to a page with other holders gets a copy of its own first.
A model with windows gives pages back while it reads, so its sequences share none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_core.paging.page_table import PAGE, PageTable, pages_of
from py_core.paging.radix_tree import RadixTree
from py_core.token_sequence import TokenSequence


class PrefixCache:
    """The pages of a table that are kept for sequences with the same beginning."""

    def __init__(self, table: PageTable) -> None:
        self._table = table
        self.tree = RadixTree()

    def match(self, adapter: int, tokens: Sequence[int]) -> tuple[list[int], int]:
        """The pages that tokens may begin with, and the number of tokens they cover. Some pages are used only as a
        whole, or not at all (`PageTable.reach`)."""
        pages, found = self.tree.match(adapter, tokens)
        found = self._table.reach(pages, found)
        return pages[: pages_of(found)], found

    def last_page(self, adapter: int, tokens: Sequence[int]) -> int | None:
        """The page that holds the last PAGE of these tokens; None if it is not kept."""
        pages, found = self.tree.match(adapter, tokens)
        return pages[-1] if tokens and not len(tokens) % PAGE and found == len(tokens) else None

    def keep(self, sequence: TokenSequence, length: int) -> None:
        """Keep the pages of the sequence's first `length` tokens."""
        pages = self._table.held(sequence.slot)[: pages_of(length)]
        new, old = self.tree.insert(sequence.adapter, sequence.tokens[:length], pages)
        self._table.hold(new)
        self._table.drop(old)

    def take(self, sequence: TokenSequence, rows: int) -> None:
        """Give a sequence without pages the kept pages of its text, except for its last `rows` tokens."""
        pages, found = self.match(sequence.adapter, sequence.tokens[: max(sequence.length - rows, 0)])
        self._table.adopt(sequence.slot, pages)
        sequence.stored = found

    def forget(self, adapter: int) -> None:
        """Drop everything that was read with this set of LoRA matrices: another set may get its number."""
        self._table.drop(self.tree.forget(adapter))

    def make_room(self, slot: int, first: int, length: int, most: int | None = None) -> bool:
        """Drop unused pages instead of growing beyond `most` pages (None: the pages of one conversation). Return True
        if any were dropped."""
        table, found = self._table, False
        while table.lacks(slot, first, length):
            if table.grown() <= (table.pages_per_slot if most is None else most) or not self.let_go():
                break
            found = True
        return found

    def let_go(self) -> bool:
        """Drop an unused page. Return False if there was none."""
        return self._drop(lambda page: self._table.references(page) == 1)

    def let_go_of_own(self, slot: int, first: int, length: int) -> bool:
        """Stop keeping a page for others that only this sequence holds besides. Return False if there was none.

        If a pass over these positions writes the page, the page needs no copy afterwards. After another page there may
        be an unused page of the same text: the sequence had a copy of its own.
        """
        table = self._table
        return any(
            self._drop(lambda page: page in own and table.references(page) == 2)  # noqa: B023
            for own in (table.shared(slot, first, length), table.held(slot))
        )

    def _drop(self, may_go: Callable[[int], bool]) -> bool:
        """Stop keeping a page: the least recently used page that may go. Return False if there was none."""
        page = self.tree.evict(may_go)
        if page is None:
            return False
        self._table.drop([page])
        return True
