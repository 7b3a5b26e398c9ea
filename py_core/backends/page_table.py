"""Which sequence holds which page of keys and values: bookkeeping only, the same on every backend."""

from __future__ import annotations

import numpy as np

PAGE = 64
"""Tokens in a page."""


class PageTable:
    """`rows[slot, position // PAGE]` is the page of a sequence's position: uint32 (slots, pages_per_slot)."""

    def __init__(self, slots: int, context_length: int, capacity: int) -> None:
        self.pages_per_slot = -(-context_length // PAGE)
        self.most = slots * self.pages_per_slot
        self.capacity = min(capacity, self.most)
        self.rows = np.zeros((slots, self.pages_per_slot), np.uint32)
        self._free = list(range(self.capacity))[::-1]
        self._held: dict[int, list[int]] = {slot: [] for slot in range(slots)}

    def lacks(self, slot: int, length: int) -> bool:
        """Whether positions 0 .. length - 1 of a sequence need more pages than there are."""
        return -(-length // PAGE) - len(self._held[slot]) > len(self._free)

    def add_capacity(self, capacity: int) -> None:
        """There are `capacity` pages now; those that were stay."""
        self._free = list(range(self.capacity, capacity))[::-1] + self._free
        self.capacity = capacity

    def take(self, slot: int, length: int) -> bool:
        """Give a sequence the pages for positions 0 .. length - 1. Whether its row has changed."""
        held, wanted = self._held[slot], -(-length // PAGE)
        if wanted <= len(held):
            return False
        while len(held) < wanted:
            page = self._free.pop()
            self.rows[slot, len(held)] = page
            held.append(page)
        return True

    def release(self, slot: int, length: int) -> None:
        """Take back the pages that only positions from `length` on use."""
        held, wanted = self._held[slot], -(-length // PAGE)
        self._free.extend(reversed(held[wanted:]))
        del held[wanted:]
