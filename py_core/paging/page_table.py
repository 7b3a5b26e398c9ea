"""Which sequence holds which page of keys and values: bookkeeping only, the same on every backend.

Layers with the same window share a table. A table of layers with a window gives back the pages that no later position
sees, and uses them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from py_core.models.config import ModelConfig
from py_core.models.graph import Attention, Graph
from py_core.paging.tiers import LEAST_HOT, Tier, TierPolicy

PAGE = 64
"""Tokens in a page."""

FIRST_PAGES = 16
"""Pages that a pool begins with."""

TIER_SHIFT = 24
"""The bits of a page's number among the pages of its tier. Those above are the tier: a hot page is its number."""

SLACK = 1024
"""Positions that are kept before a window: so many tokens at the end of a text can be taken back (another answer, a
changed question) without reading all of it again."""


def head_room(head_dim: int) -> int:
    """Values of a head in pages: those of the model, and zeros up to a multiple of 8."""
    return -(-head_dim // 8) * 8


def with_room(config: ModelConfig) -> ModelConfig:
    """The same model with heads as pages have them."""
    return replace(config, head_dim=head_room(config.head_dim))


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


def tier_of(page: int) -> Tier:
    return Tier(page >> TIER_SHIFT)


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
        self.most = slots * self.pages_per_slot
        """The most pages that it grows to."""
        self._most_of_one = most_pages(window, context_length)
        self.capacity = min(FIRST_PAGES, self.most)
        self.rows = np.zeros((slots, self.pages_per_slot), np.uint32)
        self._free = list(range(self.capacity))[::-1]
        self._free_demoted: dict[Tier, list[int]] = {Tier.WARM: [], Tier.COLD: []}
        self.demoted_capacity = {Tier.WARM: 0, Tier.COLD: 0}
        """Pages there are of the other tiers; `capacity` is that of hot ones."""
        self._references: dict[int, int] = {}
        """Of pages that are held: by how many sequences, and by who keeps them for others."""
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._first = [0] * slots
        """Which of a sequence's pages is the first that it holds."""
        self.changed: set[int] = set()
        """The sequences whose rows are others than when they were last brought to the kernels."""

    def lacks(self, slot: int, first: int, length: int) -> bool:
        """Whether a pass over positions first .. length - 1 of a sequence needs more pages than there are."""
        begin, unseen = self._unseen(slot, first, length)
        end = self._first[slot] + len(self._held[slot])
        new = max(pages_of(length) - max(begin, end), 0) + len(self._fixed(slot, max(first // PAGE, begin), length))
        return new > len(self._free) + unseen

    def grown(self) -> int:
        """The capacity after this one: the double, but no more for the first sequence than it ever holds."""
        double = 2 * self.capacity
        wanted = self._most_of_one if self.capacity < self._most_of_one < double else double
        return max(min(wanted, self.most), self.capacity)

    def limit(self, most: int | None) -> None:
        """Grow to no more pages than so many; but to as many as one sequence may hold."""
        all_of_them = len(self.rows) * self.pages_per_slot
        self.most = all_of_them if most is None else min(max(most, self._most_of_one), all_of_them)

    @property
    def free(self) -> int:
        """How many pages nobody holds."""
        return len(self._free)

    def moves(self, capacity: int) -> dict[int, int]:
        """Where only `capacity` pages are to be left, no fewer than are held: a free one among these for each page that
        is held beyond them."""
        beyond = [page for page in self._references if capacity <= page < 1 << TIER_SHIFT]
        return dict(zip(beyond, (page for page in self._free if page < capacity), strict=False))

    def shrink(self, capacity: int, moves: Mapping[int, int]) -> None:
        """There are only `capacity` pages now, and who holds one of `moves` holds the page that it was moved to."""
        moves = {page: new for page, new in moves.items() if page in self._references}  # others were given back since
        for page, new in moves.items():
            self._references[new] = self._references.pop(page)
        for slot, held in enumerate(self._held):
            for at, page in enumerate(held):
                if page in moves:
                    held[at] = moves[page]
                    self._write(slot, self._first[slot] + at, moves[page])
        # Where nobody holds a page any more, the number must be one that there is.
        self.rows[(self.rows >= capacity) & (self.rows < 1 << TIER_SHIFT)] = 0
        taken = set(moves.values())
        self._free = [page for page in self._free if page < capacity and page not in taken]
        self.capacity = capacity

    def add_capacity(self, capacity: int) -> None:
        """There are `capacity` pages now; those that were stay."""
        self._free = list(range(self.capacity, capacity))[::-1] + self._free
        self.capacity = capacity

    def take(self, slot: int, first: int, length: int) -> None:
        """Give a sequence, whose positions before `first` are stored, the pages for first .. length - 1.

        Those that no position from `first` on sees are taken back, but for SLACK. Pages that others hold, too, or that
        were demoted, are not written: new ones take the place of those from `first` on. What is stored in one that
        others hold comes first into a page of the sequence's own (`others_page`).
        """
        held = self._held[slot]
        begin, unseen = self._unseen(slot, first, length)
        self.drop(held[:unseen])
        del held[:unseen]
        self._first[slot] = self._first[slot] + unseen if held else begin
        for place in self._fixed(slot, first // PAGE, length):
            self.replace(slot, place, self.new_page())
        for place in range(self._first[slot] + len(held), pages_of(length)):
            held.append(self.new_page())
            self._write(slot, place, held[-1])

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
        for place, page in enumerate(pages):
            self._write(slot, place, page)

    def others_page(self, slot: int, position: int) -> int | None:
        """The page of a sequence's position, where others hold it, too, and positions before it are in it."""
        place = position // PAGE
        if not position % PAGE or place not in self._fixed(slot, place, position):
            return None
        return self._held[slot][place - self._first[slot]]

    def shared(self, slot: int, first: int, length: int) -> list[int]:
        """The pages of a sequence for positions first .. length - 1 that it may not write, since others hold them."""
        pages = [self._held[slot][place - self._first[slot]] for place in self._fixed(slot, first // PAGE, length)]
        return [page for page in pages if not tier_of(page)]

    def new_page(self) -> int:
        """A page that nobody holds, for who asks, until `drop`. There must be one (`lacks`)."""
        page = self._free.pop()
        self._references[page] = 1
        return page

    def replace(self, slot: int, place: int, page: int) -> None:
        """A sequence holds a page of `new_page` at this place in its row, in place of the one that was there."""
        held, at = self._held[slot], place - self._first[slot]
        self.drop([held[at]])
        held[at] = page
        self._write(slot, place, page)

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
                (self._free_demoted[tier] if (tier := tier_of(page)) else self._free).append(page)

    def whole(self, slot: int, position: int) -> int:
        """The position that a sequence, whose positions before this one are stored, can go on from: what was demoted is
        not written, so it may be where that page begins."""
        place, begin = position // PAGE, self._first[slot]
        held = self._held[slot]
        if position % PAGE and begin <= place < begin + len(held) and tier_of(held[place - begin]):
            return place * PAGE
        return position

    def aged(self, slot: int, stored: int, policy: TierPolicy) -> list[tuple[int, Tier]]:
        """The pages of a sequence that the policy wants in a lower tier, and in which, when so many are stored."""
        held = self.held(slot)
        wanted = policy.tiers(min(stored // PAGE, len(held)))
        return [
            (page, tier)
            for place, (page, tier) in enumerate(zip(held, wanted, strict=False))
            if tier > tier_of(page) and not self._ends_near(place, page)
        ]

    def add_demoted(self, tier: Tier, capacity: int) -> None:
        """There are `capacity` pages of a tier now."""
        first, self.demoted_capacity[tier] = self.demoted_capacity[tier], capacity
        new = [(tier << TIER_SHIFT) + at for at in range(first, capacity)][::-1]
        self._free_demoted[tier] = new + self._free_demoted[tier]

    def new_demoted(self, tier: Tier) -> int | None:
        """A page of a tier that nobody holds, until `demote` or `drop`; None where there is none."""
        if not self._free_demoted[tier]:
            return None
        page = self._free_demoted[tier].pop()
        self._references[page] = 1
        return page

    def demote(self, page: int, new: int) -> None:
        """All who hold a page hold one of `new_demoted` in its place; the page is free."""
        self._references[new] = self._references[page]
        for slot, held in enumerate(self._held):
            for at in (at for at, other in enumerate(held) if other == page):
                held[at] = new
                self._write(slot, self._first[slot] + at, new)
        self._references[page] = 1
        self.drop([page])

    def references(self, page: int) -> int:
        """How many hold a page."""
        return self._references.get(page, 0)

    def holders(self, tier: Tier = Tier.HOT) -> tuple[int, int]:
        """How many pages of a tier sequences hold, and how many only others do."""
        held = {page for pages in self._held for page in pages if tier_of(page) == tier}
        return len(held), sum(tier_of(page) == tier for page in self._references) - len(held)

    def sees(self, slot: int, position: int) -> bool:
        """Whether a sequence that is stored up to `position` holds all that this position sees."""
        return not self.window or self._first[slot] * PAGE <= max(0, position + 1 - self.window)

    def _write(self, slot: int, place: int, page: int) -> None:
        self.rows[slot, place] = page
        self.changed.add(slot)

    def _ends_near(self, place: int, page: int) -> bool:
        """Whether it is one of the last pages of a sequence, which may write there."""
        return any(
            at + len(held) - LEAST_HOT <= place < at + len(held) and held[place - at] == page
            for at, held in zip(self._first, self._held, strict=True)
        )

    def _fixed(self, slot: int, first: int, length: int) -> list[int]:
        """The places, from `first` on, of a sequence's pages for positions before `length` that it may not write:
        others hold them, too, or they were demoted."""
        begin, held = self._first[slot], self._held[slot]
        places = range(max(first, begin), min(pages_of(length), begin + len(held)))
        return [place for place in places if self._references[held[place - begin]] > 1 or tier_of(held[place - begin])]

    def _unseen(self, slot: int, first: int, length: int) -> tuple[int, int]:
        """The first page that a pass and what follows it may see, and how many before it the sequence holds."""
        begin = first_kept(self.window, first, length) // PAGE
        return begin, min(max(begin - self._first[slot], 0), len(self._held[slot]))
