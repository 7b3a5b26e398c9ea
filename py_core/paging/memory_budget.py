"""One budget for weights, adapters, scratch memory, and pages of keys and values: pages take what the others leave.

Everything but the pages has a fixed size, so it takes what it needs, and pages give way: first the unused pages, then
those of waiting sequences (sequence_slots.py). A pool of pages that has to shrink moves its content to its beginning
and gives back its end. Memory use is looked up whenever a pool would grow, so anything that has grown meanwhile
counts.
"""

from __future__ import annotations

from collections.abc import Callable

from py_core.paging.page_store import PageStore


class MemoryBudget:
    """`held` returns how many bytes are taken, including those of pages."""

    def __init__(self, held: Callable[[], int]) -> None:
        self.limit: int | None = None
        """The bytes that everything together may take; None: no limit."""
        self._held = held

    def apply(self, store: PageStore, more: int = 0) -> None:
        """Let the pool of pages grow to what the others leave. `more`: bytes that something else takes now."""
        if self.limit is None:
            store.limit(None)
        else:
            others = self._held() - store.limited_bytes
            store.limit(max(0, self.limit - others - more))
