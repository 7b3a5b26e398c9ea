"""One budget for weights, adapters, scratch, and pages of keys and values: pages take what the others leave of it.

What is not pages cannot be smaller, so it takes what it needs, and pages give way: first those that nobody uses, then
those of sequences that wait (sequence_slots.py). A pool of pages that has to be smaller moves what it holds to its
beginning and gives back its end. What is taken is looked up whenever a pool would grow, so whatever has grown meanwhile
counts.
"""

from __future__ import annotations

from collections.abc import Callable

from py_core.paging.page_store import PageStore


class MemoryBudget:
    """`held` says how many bytes are taken, those of pages included."""

    def __init__(self, held: Callable[[], int]) -> None:
        self.limit: int | None = None
        """The bytes that all may take together; None: as many as there are."""
        self._held = held

    def apply(self, store: PageStore, more: int = 0) -> None:
        """Let the pool of pages grow to what the others leave of it. `more`: bytes that something else takes now."""
        if self.limit is None:
            store.limit(None)
        else:
            others = self._held() - store.limited_bytes
            store.limit(max(0, self.limit - others - more))
