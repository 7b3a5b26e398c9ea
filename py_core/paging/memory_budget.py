"""One budget for weights, adapters, scratch, and pages of keys and values: pages take what the others leave of it.

What is not pages cannot be smaller, so it takes what it needs, and pages give way: first those that nobody uses, then
those of sequences that wait (sequence_slots.py). A pool of pages that has to be smaller moves what it holds to its
beginning and gives back its end. What is taken is looked up whenever a pool would grow, so whatever has grown meanwhile
counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

from py_core.backends.memory_use import MemoryUse
from py_core.models.graph import Graph
from py_core.paging.page_table import PageTable
from py_core.paging.sequence_slots import SequenceSlots


class LimitedPages(Protocol):
    """The pages of a backend (`KVPages`), of which those of layers without a window can be limited."""

    @property
    def limited(self) -> PageTable | None:
        """The table of the layers without a window, if there are any."""
        ...

    @property
    def limited_bytes(self) -> int:
        """What their pool takes, and what was given back and can be used for it again."""
        ...

    def limit(self, nbytes: int | None) -> None:
        """Let their pool grow to so many bytes, if that is enough for one conversation; None: without a limit."""
        ...


class MemoryBudget(SequenceSlots):
    """What `PipelinedBackend` shares."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._limit: int | None = None

    @property
    @abstractmethod
    def _limited_pages(self) -> LimitedPages: ...

    @abstractmethod
    def memory(self) -> MemoryUse: ...

    @abstractmethod
    async def _shrink_pool(self, capacity: int) -> dict[int, int]:
        """Have so many pages without a window only, as many as are held or more; where which page was moved to."""

    @abstractmethod
    async def _placed(self, place: Callable[[], Awaitable[None]], remove: Callable[[], None]) -> None: ...

    async def limit_memory(self, nbytes: int | None) -> None:
        self._limit = nbytes
        await self._placed(self._fit, lambda: None)

    def _make_room(self, slot: int, first: int, length: int, most: int | None = None) -> bool:
        table = self._limited_pages.limited
        if table is not None and table.lacks(slot, first, length):
            self._limit_pages(0)
        return super()._make_room(slot, first, length, most)

    async def _fit(self, more: int = 0) -> None:
        """Keep within the budget where something else takes `more` bytes now."""
        self._limit_pages(more)
        table = self._limited_pages.limited
        if table is None or table.capacity <= table.most:
            return
        while table.capacity - table.free > table.most and self._give_way():
            pass
        for page, new in (await self._shrink_pool(max(table.most, table.capacity - table.free))).items():
            self._prefixes.rename(page, new)

    def _give_way(self) -> bool:
        """Let go of a page that nobody uses, or else of those of one who waits. Whether there were any."""
        if self._let_go():
            return True
        for one in self._waiting()[:1]:
            self._send_away(one)
            return True
        return False

    def _limit_pages(self, more: int) -> None:
        if self._limit is None:
            self._limited_pages.limit(None)
        else:
            others = self.memory().total - self._limited_pages.limited_bytes
            self._limited_pages.limit(max(0, self._limit - others - more))
