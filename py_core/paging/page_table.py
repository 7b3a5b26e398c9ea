"""Records which sequence holds which page of keys and values: bookkeeping only, the same on every backend.

Layers with the same window share a table. A table of layers with a window gives back the pages that no later position
sees, and uses them again.

Convolutions have no keys: a page keeps their last rows (`kept_rows`), that of its position p at p % rows. A position
reads the rows before it, in its page or at the end of the page before. A page's end is always there. Within a page a
sequence can continue only near the last position that was written (docs/decisions/0107-state-in-pages.md).

In a model with delta rules only a few pages have what a sequence needs to continue in them or behind them: a state. It
has the matrices S of all delta rules at the page's beginning, the rows that the page's positions add to them, and the
last rows of convolutions (docs/decisions/0110-states-of-pages.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, ShortConv
from py_core.paging.tiers import LEAST_HOT, Tier, TierPolicy

PAGE = 64
"""Tokens in a page."""

FIRST_PAGES = 16
"""Pages that a pool begins with."""

REWIND = 8
"""The positions that can be taken back within a page of a model with convolutions: all rows of a pass with guesses."""

STATES = 6
"""States that a model with delta rules begins with. A running sequence needs those of its page and of the page
before."""

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


def state_sizes(graph: Graph) -> dict[tuple[str, int], int]:
    """The bytes of each part of a state: of a "rule" the matrices S of a layer, with the rows k, u and the sums of g of
    a page, and the "rows" of its convolution. Empty without delta rules."""
    rules = graph.delta_rules
    found = {("rule", layer): 4 * op.heads * head_state(op.size) for layer, op in rules.items()}
    return found | {("rows", layer): 4 * kept_rows(graph) * op.out.width for layer, op in _convolutions(graph, rules)}


def head_state(size: int) -> int:
    """The numbers of a delta rule's head in a state: S (size, size), k and u (PAGE, size) and the sums of g (PAGE)."""
    return size * size + 2 * PAGE * size + PAGE


def _convolutions(graph: Graph, rules: Collection[int]) -> list[tuple[int, ShortConv]]:
    return list(graph.convolutions.items()) if rules else []


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


@dataclass
class _State:
    """A page's state: its number, the page's place in a text, and the last time that it was used."""

    number: int
    place: int
    used: int


class PageTable:
    """`rows[slot, position // PAGE]` is the page of a sequence's position: uint32 (slots, pages_per_slot).

    If the sequence holds no page there, the number means nothing. `window` is that of `layer_groups`, `sight` that of
    `sight_of` if the pages have rows of convolutions. `states` is the number of states to begin with, 0 if a sequence
    can continue without one.
    """

    def __init__(self, slots: int, context_length: int, window: int = 0, sight: int = 0, states: int = 0) -> None:
        self.states = states
        self._states: dict[int, _State] = {}
        """The states by their pages."""
        self._free_states = list(range(states))[::-1]
        self._clock = 0
        """The number of times that a page of a text began."""
        self.at_work: Collection[int] = ()
        """The slots of the sequences that run, which need the states where they are."""
        self._at = [0] * slots
        """The place in its text at which each sequence continues."""
        self.window, self.sight = window, sight
        self._written: dict[int, int] = {}
        """With a `sight`: the positions of each page, from its first on, that may have been written."""
        self.pages_per_slot = pages_of(context_length)
        self.most = slots * self.pages_per_slot
        """The most pages that the table grows to."""
        self._most_of_one = most_pages(window, context_length)
        self.capacity = min(FIRST_PAGES, self.most)
        self.rows = np.zeros((slots, self.pages_per_slot), np.uint32)
        self.state_rows = np.zeros((slots, self.pages_per_slot if states else 0), np.uint32)
        """As `rows`: the state of each page that a sequence writes, and of the page before."""
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
            if page in self._states:
                self._states[new] = self._states.pop(page)
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
        if self.states:
            self._take_states(slot, first, length)

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
                if state := self._states.pop(page, None):
                    self._free_states.append(state.number)
                (self._free_demoted[tier] if (tier := tier_of(page)) else self._free).append(page)

    def whole(self, slot: int, position: int) -> int:
        """The position from which a sequence can continue if its positions before `position` are stored (`reach`)."""
        if self._first[slot]:
            return position
        position = self.reach(self._held[slot], position)
        self._at[slot] = position // PAGE
        return position

    def reach(self, pages: Sequence[int], position: int) -> int:
        """The position from which a text with these pages can continue if its positions before `position` are stored:
        this one, or the nearest beginning of a page before it that is good for it (`continues`)."""
        while position and not self._continues(pages, position):
            position = (position - 1) // PAGE * PAGE
        return position

    def _continues(self, pages: Sequence[int], position: int) -> bool:
        """True if a text can continue at this position. A demoted page is not written; rows of convolutions may have
        been overwritten by those of later positions; states may be others' meanwhile."""
        place, offset = (position - 1) // PAGE, position % PAGE
        page = pages[place]
        if self.states and not self._has_states(pages, place, offset):
            return False
        lost = self._written.get(page, 0) - self.sight - REWIND if self.sight else 0
        return not offset or (not tier_of(page) and lost <= max(offset - self.sight, 0))

    def _has_states(self, pages: Sequence[int], place: int, offset: int) -> bool:
        """True if a page has its state, and the page before, too, if its last rows are read there."""
        before = place > 0 and 0 < offset < self.sight
        return pages[place] in self._states and (not before or pages[place - 1] in self._states)

    def lacks_states(self, slot: int, first: int, length: int) -> bool:
        """True if `take` needs more states than there are."""
        begin, end = first // PAGE, pages_of(length)
        fixed, held = self._fixed(slot, begin, length), self._held[slot]
        there = sum(place not in fixed and held[place] in self._states for place in range(begin, min(end, len(held))))
        return self.states > 0 and end - begin - there > len(self._free_states) + len(self._spare(slot, begin))

    def add_states(self, count: int) -> None:
        """Let there be `count` states."""
        self._free_states = list(range(self.states, count))[::-1] + self._free_states
        self.states = count

    def state_of(self, page: int) -> int | None:
        """The number of a page's state; None if it has none."""
        return self._states[page].number if page in self._states else None

    def copy_state(self, slot: int, page: int, new: int) -> int:
        """Give a page a state to copy that of `page` to, before it replaces that one in a sequence. Returns its
        number."""
        old = self._states[page]
        self._states[new] = _State(self._new_state(slot, old.place), old.place, old.used)
        return self._states[new].number

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

    def _take_states(self, slot: int, first: int, length: int) -> None:
        begin, held = first // PAGE, self._held[slot]
        self._at[slot] = begin
        for place in range(max(begin - 1, 0), pages_of(length)):
            state = self._states.get(held[place])
            if place >= begin and not state:
                self._clock += 1
                state = self._states[held[place]] = _State(self._new_state(slot, begin), place, self._clock)
            if state:
                state.used = self._clock
                if self.state_rows[slot, place] != state.number:
                    self.state_rows[slot, place] = state.number
                    self.changed.add(slot)

    def _new_state(self, slot: int, begin: int) -> int:
        """A free state, or one that is taken from a page. There must be one (`lacks_states`)."""
        if not self._free_states:
            # A text keeps its states at distances that grow with the text behind them, from round places.
            def worth(page: int) -> float:
                place = self._states[page].place + 1
                return (place & -place) / (1 + self._clock - self._states[page].used)

            self._free_states.append(self._states.pop(min(self._spare(slot, begin), key=worth)).number)
        return self._free_states.pop()

    def _spare(self, slot: int, begin: int) -> list[int]:
        """The pages whose states no sequence needs that runs, or that begins at this place in the slot's text."""
        places = {one: self._at[one] for one in self.at_work} | {slot: begin}
        needed = {page for one, place in places.items() for page in self._held[one][max(place - 1, 0) :]}
        return [page for page in self._states if page not in needed]

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
