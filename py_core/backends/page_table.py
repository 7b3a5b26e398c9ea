"""Which sequence holds which page of keys and values: bookkeeping only, the same on every backend.

Layers with the same window share a table. A table of layers with a window gives back the pages that no later position
sees, and uses them again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_core.models.graph import Attention, Graph

PAGE = 64
"""Tokens in a page."""

FIRST_PAGES = 16
"""Pages that a pool begins with."""

SLACK = 1024
"""Positions that are kept before a window: so many tokens at the end of a text can be taken back (another answer, a
changed question) without reading all of it again."""


def layer_groups(graph: Graph, context_length: int) -> dict[int, list[int]]:
    """The layers that share a page table, by their window; those that keep the whole context by 0."""
    groups: dict[int, list[int]] = {}
    for op in graph.ops:
        if isinstance(op, Attention):
            groups.setdefault(kept_window(op.window, context_length), []).append(op.layer)
    return groups


def kept_window(window: int, context_length: int) -> int:
    """A layer's window, or 0 where nothing of a context of this length would be given back."""
    return window if window + SLACK < context_length else 0


def first_kept(window: int, first: int, length: int) -> int:
    """The first position to keep during a pass over positions first .. length - 1."""
    return max(0, min(first + 1 - window, length - window - SLACK)) if window else 0


def pages_of(length: int) -> int:
    """Pages for positions 0 .. length - 1."""
    return -(-length // PAGE)


def most_pages(window: int, context_length: int) -> int:
    """The most pages that one sequence holds, where a pass has no more positions than SLACK."""
    whole = pages_of(context_length)
    return min(whole, pages_of(window + SLACK) + 1) if window else whole


class PageTable:
    """`rows[slot, position // PAGE]` is the page of a sequence's position: uint32 (slots, pages_per_slot).

    Where the sequence holds no page, the number means nothing. `window` is that of `layer_groups`.
    """

    def __init__(self, slots: int, context_length: int, window: int = 0) -> None:
        self.window = window
        self.pages_per_slot = pages_of(context_length)
        self._most = slots * self.pages_per_slot
        self._most_of_one = most_pages(window, context_length)
        self.capacity = min(FIRST_PAGES, self._most)
        self.rows = np.zeros((slots, self.pages_per_slot), np.uint32)
        self._free = list(range(self.capacity))[::-1]
        self._references: dict[int, int] = {}
        """Of pages that are held: by how many sequences, and by who keeps them for others."""
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._first = [0] * slots
        """Which of a sequence's pages is the first that it holds."""

    def lacks(self, slot: int, first: int, length: int) -> bool:
        """Whether a pass over positions first .. length - 1 of a sequence needs more pages than there are."""
        begin, unseen = self._unseen(slot, first, length)
        end = self._first[slot] + len(self._held[slot])
        shared = len(self._shared(slot, max(first // PAGE, begin)))
        return pages_of(length) - max(begin, end) + shared > len(self._free) + unseen

    def grown(self) -> int:
        """The capacity after this one: the double, but no more for the first sequence than it ever holds."""
        double = 2 * self.capacity
        return min(self._most_of_one if self.capacity < self._most_of_one < double else double, self._most)

    def add_capacity(self, capacity: int) -> None:
        """There are `capacity` pages now; those that were stay."""
        self._free = list(range(self.capacity, capacity))[::-1] + self._free
        self.capacity = capacity

    def take(self, slot: int, first: int, length: int) -> bool:
        """Give a sequence, whose positions before `first` are stored, the pages for first .. length - 1.

        Those that no position from `first` on sees are taken back, but for SLACK. Pages that others hold, too, are not
        written: new ones take the place of those from `first` on. Whether its row has changed.
        """
        held = self._held[slot]
        begin, unseen = self._unseen(slot, first, length)
        self.drop(held[:unseen])
        del held[:unseen]
        self._first[slot] = self._first[slot] + unseen if held else begin
        start = end = self._first[slot] + len(held)
        others = self._shared(slot, first // PAGE)
        for place in others:
            self.drop([held[place - self._first[slot]]])
            self.rows[slot, place] = held[place - self._first[slot]] = self._new()
        while end < pages_of(length):
            page = self._new()
            self.rows[slot, end] = page
            held.append(page)
            end += 1
        return end > start or bool(others)

    def release(self, slot: int, length: int) -> None:
        """Take back the pages that only positions from `length` on use."""
        held, kept = self._held[slot], max(pages_of(length) - self._first[slot], 0)
        self.drop(held[kept:][::-1])
        del held[kept:]
        if not held:
            self._first[slot] = 0

    def held(self, slot: int) -> list[int]:
        """The pages of a sequence, where it has all of them from the first on."""
        return list(self._held[slot]) if not self._first[slot] else []

    def adopt(self, slot: int, pages: Sequence[int]) -> None:
        """A sequence without pages begins with these, which others hold."""
        if self._held[slot]:
            raise ValueError("the sequence holds pages")
        self.hold(pages)
        self._held[slot] = list(pages)
        self.rows[slot, : len(pages)] = pages

    def hold(self, pages: Sequence[int]) -> None:
        """Keep pages that are held already, until `drop`."""
        for page in pages:
            self._references[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """Who held these holds them no more. Those that nobody holds are free."""
        for page in pages:
            self._references[page] -= 1
            if not self._references[page]:
                del self._references[page]
                self._free.append(page)

    def references(self, page: int) -> int:
        """How many hold a page."""
        return self._references.get(page, 0)

    def sees(self, slot: int, position: int) -> bool:
        """Whether a sequence that is stored up to `position` holds all that this position sees."""
        return not self.window or self._first[slot] * PAGE <= max(0, position + 1 - self.window)

    def _new(self) -> int:
        page = self._free.pop()
        self._references[page] = 1
        return page

    def _shared(self, slot: int, first: int) -> list[int]:
        """The places, from `first` on, of a sequence's pages that others hold, too."""
        begin = self._first[slot]
        return [
            begin + at for at, page in enumerate(self._held[slot]) if begin + at >= first and self._references[page] > 1
        ]

    def _unseen(self, slot: int, first: int, length: int) -> tuple[int, int]:
        """The first page that a pass and what follows it may see, and how many before it the sequence holds."""
        begin = first_kept(self.window, first, length) // PAGE
        return begin, min(max(begin - self._first[slot], 0), len(self._held[slot]))
