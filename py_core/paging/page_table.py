"""Records which sequence holds which page of keys and values: bookkeeping only, the same on every backend.

Layers with the same window share a table. A table of layers with a window gives back the pages that no later position
sees, and uses them again.

Convolutions have no keys: a page keeps their last rows (`kept_rows`), that of its position p at p % rows. A position
reads the rows before it, in its page or at the end of the page before. A page's end is always there. Within a page a
sequence can continue only near the last position that was written (docs/decisions/0107-state-in-pages.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.tiers import LEAST_HOT, Tier, TierPolicy

PAGE = 64
"""Tokens in a page."""

FIRST_PAGES = 16
"""Pages that a pool begins with."""

REWIND = 8
"""The positions that can be taken back within a page of a model with convolutions: all rows of a pass with guesses."""

TIER_SHIFT = 24
"""The bits of a page's number within its tier. The bits above are the tier (0 for hot pages)."""

SLACK = 1024
"""Positions that are kept before a window: this many tokens at the end of a text can be taken back (another answer, a
changed question) without reading all of the text again."""


def head_room(head_dim: int) -> int:
    """Values of a head in pages: those of the model, padded with zeros to a multiple of 8."""
    return -(-head_dim // 8) * 8


def with_room(config: ModelConfig) -> ModelConfig:
    """The same model with heads padded as in pages."""
    return replace(config, head_dim=head_room(config.head_dim))


def layer_groups(graph: Graph, context_length: int) -> dict[int, list[int]]:
    """The layers that share a page table, by their window; layers that keep the whole context have the key 0."""
    groups: dict[int, list[int]] = {}
    for layer, op in graph.caches.items():
        groups.setdefault(kept_window(op.window, context_length), []).append(layer)
    return groups


def sight_of(graph: Graph) -> int:
    """The most positions before its own of which a convolution reads rows; 0 without convolutions."""
    return max((op.taps - 1 for op in graph.convolutions.values()), default=0)


def kept_rows(graph: Graph) -> int:
    """The rows of each convolution in a page: those that a position REWIND before the last one reads, and all after."""
    sight = sight_of(graph)
    return sight + REWIND if sight else 0


def kept_window(window: int, context_length: int) -> int:
    """A layer's window, or 0 if no part of a context of this length would be given back."""
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
    """The most pages that one sequence holds if a pass has at most SLACK positions."""
    whole = pages_of(context_length)
    return min(whole, pages_of(window + SLACK) + 1) if window else whole


class PageTable:
    """`rows[slot, position // PAGE]` is the page of a sequence's position: uint32 (slots, pages_per_slot).

    If the sequence holds no page there, the number means nothing. `window` is that of `layer_groups`, `sight` that of
    `sight_of` if the pages have rows of convolutions.
    """

    def __init__(self, slots: int, context_length: int, window: int = 0, sight: int = 0) -> None:
        self.window, self.sight = window, sight
        self._written: dict[int, int] = {}
        """With a `sight`: the positions of each page, from its first on, that may have been written."""
        self.pages_per_slot = pages_of(context_length)
        self.most = slots * self.pages_per_slot
        """The most pages that the table grows to."""
        self._most_of_one = most_pages(window, context_length)
        self.capacity = min(FIRST_PAGES, self.most)
        self.rows = np.zeros((slots, self.pages_per_slot), np.uint32)
        self._free = list(range(self.capacity))[::-1]
        self._free_demoted: dict[Tier, list[int]] = {Tier.WARM: [], Tier.COLD: []}
        self.demoted_capacity = {Tier.WARM: 0, Tier.COLD: 0}
        """The number of pages in the other tiers; `capacity` is the number of hot pages."""
        self._references: dict[int, int] = {}
        """The number of references to each held page: from sequences, and from caches that keep it for other
        sequences."""
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._first = [0] * slots
        """The index of the first page that each sequence holds."""
        self.changed: set[int] = set()
        """The sequences whose rows changed since they were last copied to the kernels."""

    def lacks(self, slot: int, first: int, length: int) -> bool:
        """True if a pass over positions first .. length - 1 of a sequence needs more pages than there are."""
        begin, unseen = self._unseen(slot, first, length)
        end = self._first[slot] + len(self._held[slot])
        new = max(pages_of(length) - max(begin, end), 0) + len(self._fixed(slot, max(first // PAGE, begin), length))
        return new > len(self._free) + unseen

    def grown(self) -> int:
        """The next capacity: the double, but first no more than one sequence ever holds."""
        double = 2 * self.capacity
        wanted = self._most_of_one if self.capacity < self._most_of_one < double else double
        return max(min(wanted, self.most), self.capacity)

    def limit(self, most: int | None) -> None:
        """Grow to at most `most` pages, but always to as many as one sequence may hold."""
        all_of_them = len(self.rows) * self.pages_per_slot
        self.most = all_of_them if most is None else min(max(most, self._most_of_one), all_of_them)

    @property
    def free(self) -> int:
        """The number of pages without a holder."""
        return len(self._free)

    def moves(self, capacity: int) -> dict[int, int]:
        """The moves that shrink the pool to `capacity` pages (at least those in use): a free page below `capacity` for
        each held page above it."""
        beyond = [page for page in self._references if capacity <= page < 1 << TIER_SHIFT]
        return dict(zip(beyond, (page for page in self._free if page < capacity), strict=False))

    def shrink(self, capacity: int, moves: Mapping[int, int]) -> None:
        """Shrink to `capacity` pages. Holders of a page in `moves` hold the page that it was moved to."""
        moves = {page: new for page, new in moves.items() if page in self._references}  # others are gone since
        for page, new in moves.items():
            self._references[new] = self._references.pop(page)
            if page in self._written:
                self._written[new] = self._written.pop(page)
        for slot, held in enumerate(self._held):
            for at, page in enumerate(held):
                if page in moves:
                    held[at] = moves[page]
                    self._write(slot, self._first[slot] + at, moves[page])
        # The number of a page without a holder must still be that of an existing page.
        self.rows[(self.rows >= capacity) & (self.rows < 1 << TIER_SHIFT)] = 0
        taken = set(moves.values())
        self._free = [page for page in self._free if page < capacity and page not in taken]
        self.capacity = capacity

    def add_capacity(self, capacity: int) -> None:
        """Grow to `capacity` pages; the existing pages stay."""
        self._free = list(range(self.capacity, capacity))[::-1] + self._free
        self.capacity = capacity

    def take(self, slot: int, first: int, length: int) -> None:
        """Give a sequence, whose positions before `first` are stored, the pages for positions first .. length - 1.

        Pages that no position from `first` on sees are taken back, except for SLACK. Pages that are demoted or have
        other holders, too, are not written: new pages replace them from `first` on. The stored part of a page with
        other holders is first copied into a page of the sequence's own (`others_page`).
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
        if self.sight:
            self._note_written(slot, first, length)

    def release(self, slot: int, length: int) -> None:
        """Take back the pages that only positions from `length` on use."""
        held, kept = self._held[slot], max(pages_of(length) - self._first[slot], 0)
        self.drop(held[kept:][::-1])
        del held[kept:]
        if not held:
            self._first[slot] = 0

    def held(self, slot: int) -> list[int]:
        """The pages of a sequence; none if it does not hold all of them from the first on."""
        return list(self._held[slot]) if not self._first[slot] else []

    def adopt(self, slot: int, pages: Sequence[int]) -> None:
        """Let a sequence without pages begin with these pages, which have other holders."""
        if self._held[slot]:
            raise ValueError("the sequence holds pages")
        self.hold(pages)
        self._held[slot] = list(pages)
        for place, page in enumerate(pages):
            self._write(slot, place, page)

    def others_page(self, slot: int, position: int) -> int | None:
        """The page of a sequence's position, if it has other holders, too, and contains earlier positions; None
        otherwise."""
        place = position // PAGE
        if not position % PAGE or place not in self._fixed(slot, place, position):
            return None
        return self._held[slot][place - self._first[slot]]

    def shared(self, slot: int, first: int, length: int) -> list[int]:
        """The pages of a sequence for positions first .. length - 1 that it may not write because they have other
        holders."""
        pages = [self._held[slot][place - self._first[slot]] for place in self._fixed(slot, first // PAGE, length)]
        return [page for page in pages if not tier_of(page)]

    def new_page(self) -> int:
        """Return a free page, which the caller holds until `drop`. There must be a free page (`lacks`)."""
        page = self._free.pop()
        self._references[page] = 1
        return page

    def replace(self, slot: int, place: int, page: int) -> None:
        """Replace the page at this place in a sequence's row with a page of `new_page`."""
        held, at = self._held[slot], place - self._first[slot]
        if held[at] in self._written:
            self._written[page] = self._written[held[at]]
        self.drop([held[at]])
        held[at] = page
        self._write(slot, place, page)

    def hold(self, pages: Sequence[int]) -> None:
        """Add a reference to pages that are held already, until `drop`."""
        for page in pages:
            self._references[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """Drop a reference to each of these pages. Pages without references are free."""
        for page in pages:
            self._references[page] -= 1
            if not self._references[page]:
                del self._references[page]
                (self._free_demoted[tier] if (tier := tier_of(page)) else self._free).append(page)

    def whole(self, slot: int, position: int) -> int:
        """The position from which a sequence can continue if its positions before `position` are stored: this one, or
        that where its page begins (`continues`)."""
        place, begin = position // PAGE, self._first[slot]
        held = self._held[slot]
        if begin <= place < begin + len(held) and not self.continues(held[place - begin], position % PAGE):
            return place * PAGE
        return position

    def continues(self, page: int, offset: int) -> bool:
        """True if a sequence can continue at this offset in a page whose positions before it are stored. A demoted page
        is not written; rows of convolutions may have been overwritten by those of later positions."""
        if not offset:
            return True
        lost = self._written.get(page, 0) - self.sight - REWIND if self.sight else 0
        return not tier_of(page) and lost <= max(offset - self.sight, 0)

    def aged(self, slot: int, stored: int, policy: TierPolicy) -> list[tuple[int, Tier]]:
        """The pages of a sequence that the policy wants in a lower tier, with that tier, if `stored` positions are
        stored."""
        held = self.held(slot)
        wanted = policy.tiers(min(stored // PAGE, len(held)))
        return [
            (page, tier)
            for place, (page, tier) in enumerate(zip(held, wanted, strict=False))
            if tier > tier_of(page) and not self._ends_near(place, page)
        ]

    def add_demoted(self, tier: Tier, capacity: int) -> None:
        """Grow a tier to `capacity` pages."""
        first, self.demoted_capacity[tier] = self.demoted_capacity[tier], capacity
        new = [(tier << TIER_SHIFT) + at for at in range(first, capacity)][::-1]
        self._free_demoted[tier] = new + self._free_demoted[tier]

    def new_demoted(self, tier: Tier) -> int | None:
        """Return a free page of a tier, held until `demote` or `drop`; None if there is none."""
        if not self._free_demoted[tier]:
            return None
        page = self._free_demoted[tier].pop()
        self._references[page] = 1
        return page

    def demote(self, page: int, new: int) -> None:
        """Replace a page by one of `new_demoted` for all holders; the page is free afterwards."""
        self._references[new] = self._references[page]
        for slot, held in enumerate(self._held):
            for at in (at for at, other in enumerate(held) if other == page):
                held[at] = new
                self._write(slot, self._first[slot] + at, new)
        self._references[page] = 1
        self.drop([page])

    def references(self, page: int) -> int:
        """The number of references to a page."""
        return self._references.get(page, 0)

    def holders(self, tier: Tier = Tier.HOT) -> tuple[int, int]:
        """The number of pages of a tier that sequences hold, and of those that only other holders keep."""
        held = {page for pages in self._held for page in pages if tier_of(page) == tier}
        return len(held), sum(tier_of(page) == tier for page in self._references) - len(held)

    def sees(self, slot: int, position: int) -> bool:
        """True if a sequence that is stored up to `position` holds everything that this position sees."""
        return not self.window or self._first[slot] * PAGE <= max(0, position + 1 - self.window)

    def _write(self, slot: int, place: int, page: int) -> None:
        self.rows[slot, place] = page
        self.changed.add(slot)

    def _note_written(self, slot: int, first: int, length: int) -> None:
        """Note which positions of its pages a sequence writes if it runs positions first .. length - 1."""
        for place in range(first // PAGE, pages_of(length)):
            page, end = self._held[slot][place - self._first[slot]], min(length - place * PAGE, PAGE)
            self._written[page] = max(end, self._written.get(page, 0) if first > place * PAGE else 0)

    def _ends_near(self, place: int, page: int) -> bool:
        """True if the page is among the last pages of a sequence, which the sequence may write."""
        return any(
            at + len(held) - LEAST_HOT <= place < at + len(held) and held[place - at] == page
            for at, held in zip(self._first, self._held, strict=True)
        )

    def _fixed(self, slot: int, first: int, length: int) -> list[int]:
        """The places, from `first` on, of a sequence's pages for positions before `length` that it may not write: they
        are demoted or have other holders, too."""
        begin, held = self._first[slot], self._held[slot]
        places = range(max(first, begin), min(pages_of(length), begin + len(held)))
        return [place for place in places if self._references[held[place - begin]] > 1 or tier_of(held[place - begin])]

    def _unseen(self, slot: int, first: int, length: int) -> tuple[int, int]:
        """The first page that a pass and the following passes may see, and the number of pages before it that are
        held."""
        begin = first_kept(self.window, first, length) // PAGE
        return begin, min(max(begin - self._first[slot], 0), len(self._held[slot]))
