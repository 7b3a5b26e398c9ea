"""Sequences that begin alike share the pages of their beginning: the same on every backend that has a page table.

Pages are kept when a prompt is read, and when a sequence forgets tokens or ends: then the last one, too, which may have
room. Who writes into a page that others hold gets a copy of its own first. A model with windows gives pages back while
it reads, and shares none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from py_core.backends.adapter_use import AdapterUse
from py_core.backends.base import NO_SLOT, TokenSequence
from py_core.models.graph import Graph
from py_core.paging.page_table import PAGE, PageTable, pages_of, tier_of
from py_core.paging.radix_tree import LEAST_COPIED, RadixTree


class PrefixCache(AdapterUse):
    """What `PipelinedBackend` shares."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._prefixes = RadixTree()

    @property
    @abstractmethod
    def _shared_table(self) -> PageTable | None:
        """The page table of the model's layers; None where they have several, or one with a window."""

    def begin_with(self, sequence: TokenSequence, tokens: Sequence[int]) -> int:
        table = self._shared_table
        if table is None or not sequence.shares or sequence.tokens != list(tokens[: sequence.length]):
            return sequence.length
        pages, found = self._match(sequence.adapter, tokens[: len(tokens) - 1])
        if found < sequence.stored + LEAST_COPIED:
            return sequence.length
        self._rewind(sequence, 0)
        table.release(sequence.slot, 0)
        table.adopt(sequence.slot, pages)
        sequence.tokens, sequence.stored = list(tokens[:found]), found
        return found

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        if sequence.adapter != number:
            self._keep_prefix(sequence)
        super().use_adapter(sequence, number)

    def remove_adapter(self, number: int) -> None:
        super().remove_adapter(number)
        if table := self._shared_table:
            table.drop(self._prefixes.forget(number))  # another set may get the number

    def _keep_prefix(self, sequence: TokenSequence, ends: bool = True) -> None:
        """Keep the sequence's pages for whoever begins alike. `ends`: it does not go on in the last one, which may have
        room, since it forgets tokens."""
        table = self._shared_table
        if table is None or not sequence.shares or sequence.slot == NO_SLOT:
            return
        length = sequence.stored if ends else sequence.stored // PAGE * PAGE
        pages = table.held(sequence.slot)[: pages_of(length)]
        new, old = self._prefixes.insert(sequence.adapter, sequence.tokens[:length], pages)
        table.hold(new)
        table.drop(old)

    def _take_kept_pages(self, sequence: TokenSequence, rows: int) -> None:
        """A sequence that holds no pages takes those that are kept of its text, but for its last `rows` tokens."""
        table = self._shared_table
        if table is not None and sequence.shares:
            pages, found = self._match(sequence.adapter, sequence.tokens[: max(sequence.length - rows, 0)])
            table.adopt(sequence.slot, pages)
            sequence.stored = found

    def _match(self, adapter: int, tokens: Sequence[int]) -> tuple[list[int], int]:
        """The pages that tokens may begin with, and for how many of these: no part of one that was demoted."""
        pages, found = self._prefixes.match(adapter, tokens)
        if pages and found % PAGE and tier_of(pages[-1]):
            return pages[:-1], found // PAGE * PAGE
        return pages, found

    def _forget_prefixes(self) -> None:
        """What the pages held is lost, and the page table is a new one."""
        self._prefixes = RadixTree()

    def _make_room(self, slot: int, first: int, length: int, most: int | None = None) -> bool:
        """Let go of pages that nobody uses, rather than have more than `most` pages: without it, those of one
        conversation. Whether any were."""
        table, found = self._shared_table, False
        while table is not None and table.lacks(slot, first, length):
            if table.grown() <= (table.pages_per_slot if most is None else most) or not self._let_go():
                break
            found = True
        return found

    def _let_go(self) -> bool:
        """Let go of a page that nobody uses. Whether there was one."""
        return self._drop_kept(lambda table, page: table.references(page) == 1)

    def _let_go_of_own(self, slot: int, first: int, length: int) -> bool:
        """Keep a page for others no more that only this sequence holds besides. Whether there was one.

        One that a pass over these positions writes needs no copy then. Behind another one there may be a page of the
        same text that nobody uses: the sequence had one of its own.
        """
        if (table := self._shared_table) is None:
            return False
        return any(
            self._drop_kept(lambda table, page: page in own and table.references(page) == 2)  # noqa: B023
            for own in (table.shared(slot, first, length), table.held(slot))
        )

    def _drop_kept(self, may_go: Callable[[PageTable, int], bool]) -> bool:
        """Keep a page no more for whoever begins alike, the one that was used longest ago of those that may go. Whether
        there was one."""
        table = self._shared_table
        page = self._prefixes.evict(lambda page: may_go(table, page)) if table else None
        if table is None or page is None:
            return False
        table.drop([page])
        return True
