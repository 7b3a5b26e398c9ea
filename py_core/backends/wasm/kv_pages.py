"""Pages of keys and values in the kernels' memory: EXTENT pages of a head lie together, [extent][layer][kv head][page].

Layers with the same window have a page table, and extents of their own, one after the other as each is needed. A
layer's share of an extent is a part; all parts have the same size, and a layer of larger heads takes several. An entry
of a table is EXTENT * (the number of the part in which the extent begins) + the page's place in the extent. Demoted
pages have extents of their own, of as many pages as fit (layout.py).

The rows of convolutions (page_table.py) lie in parts behind those of the layers, [convolution][page][row]. In a
model with states they are in these. A state takes parts of its own, one behind the other; its entry in the table of
states is its address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from py_core.backend_errors import BackendError
from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.layout import (
    EXTENT,
    TIER_BIT,
    Arena,
    Op,
    OpKind,
    head_page_bytes,
    head_tier_bytes,
    program_bytes,
    tier_pages,
)
from py_core.models.config import ModelConfig
from py_core.models.graph import Attention, Graph
from py_core.paging.page_table import (
    PAGE,
    STATES,
    TIER_SHIFT,
    PageTable,
    head_room,
    kept_rows,
    layer_groups,
    sight_of,
    state_sizes,
    tier_of,
)
from py_core.paging.tiers import Tier


@dataclass(frozen=True)
class _Group:
    """Layers with the same window: their pages, the place of the table, and the part in which each extent begins, for
    hot and for demoted pages."""

    layers: list[int]
    pages: PageTable
    table: int
    extents: list[int]
    first: dict[int, int]
    """The first part of each layer in an extent."""
    parts: int
    """The parts of an extent: those of all layers and of convolutions."""
    states: list[int]
    """The part in which each state begins."""
    state_table: int
    demoted: dict[Tier, list[int]] = field(default_factory=lambda: {Tier.WARM: [], Tier.COLD: []})


class _Place(NamedTuple):
    """The place of a page: the first layer's first head, the bytes of a head, the distance to the next head, and the
    number of heads of all layers. For its rows of convolutions: the first one's, their bytes and so on."""

    address: int
    nbytes: int
    step: int
    pieces: int


class KVPages:
    """Takes the tables' room from the arena. The pages begin at the end of the arena, so that they can grow."""

    def __init__(
        self, host: KernelHost, config: ModelConfig, graph: Graph, limbs: int, slots: int, arena: Arena, state: int
    ) -> None:
        self._host = host
        self._caches, self._limbs, self._differ = graph.caches, limbs, graph.heads_differ
        self.part_bytes = EXTENT * min(map(self._page_bytes, self._caches.values()))
        # Any layer: only if all are alike, pages leave the hot tier.
        one = next(iter(self._caches.values()))
        self._heads, self._head_dim = one.num_key_value_heads, head_room(one.head_dim)
        self._tier_bytes, self._tier_pages = (each(one.head_dim, limbs) for each in (head_tier_bytes, tier_pages))
        self._offsets: dict[tuple[str, int], int] = {}
        """The place of each part of a state in it."""
        self._state_bytes = 0
        for part, nbytes in state_sizes(graph).items():
            self._offsets[part] = self._state_bytes
            self._state_bytes += -(-nbytes // 64) * 64
        self._state_parts = -(-self._state_bytes // self.part_bytes)
        self._convolutions = [] if self._offsets else list(graph.convolutions)
        (width,) = {op.out.width for op in graph.convolutions.values()} or (0,)
        self._rows_bytes = kept_rows(graph) * width * 4
        self._state = state
        self._copying = arena.take(len(program_bytes([Op(OpKind.COPY)] * (1 + len(self._caches)), state)))
        self._arena, self._parts = arena, 0
        self._free: dict[int, int] = {}
        """Parts that were given back: the number of consecutive parts, by the first."""
        self.make_way: Callable[[int], Awaitable[None]] = _nothing
        """Awaited before the memory grows by a number of bytes for something other than pages."""
        self._groups: list[_Group] = []
        for window, layers in layer_groups(graph, config.context_length).items():
            pages = PageTable(
                slots, config.context_length, window, 0 if window else sight_of(graph), STATES if self._offsets else 0
            )
            rows = EXTENT * len(self._convolutions) * self._rows_bytes if pages.sight else 0
            first, parts = dict[int, int](), 0
            for layer in layers:
                first[layer] = parts
                parts += -(-EXTENT * self._page_bytes(self._caches[layer]) // self.part_bytes)
            parts += -(-rows // self.part_bytes)
            tables = arena.take(pages.rows.nbytes), arena.take(pages.state_rows.nbytes)
            group = _Group(layers, pages, tables[0], [], first, parts, [], tables[1])
            self._groups.append(group)
            extents = _extents(pages.capacity)
            self._add_extents(group, extents, self._parts)
            self._parts += extents * parts
            for _ in range(pages.states):
                group.states.append(self._parts)
                self._parts += self._state_parts
        self._group_of = {layer: group for group in self._groups for layer in group.layers}
        self._group_of |= {layer: group for group in self._groups if group.pages.sight for layer in self._convolutions}

    @property
    def end(self) -> int:
        """The end of the memory that the pages take now."""
        return self._arena.end + self._parts * self.part_bytes

    def base(self, layer: int) -> int:
        """Return the address from which kernels count a layer's parts: its own in an extent that begins with part 0.

        The arena must be complete by then.
        """
        return self._arena.end + self._group_of[layer].first[layer] * self.part_bytes

    def rows(self, layer: int) -> int:
        """Return the address from which kernels count the rows of a convolution, as `base`."""
        group, number = self._group_of[layer], self._convolutions.index(layer)
        return self._arena.end + len(group.layers) * self.part_bytes + number * EXTENT * self._rows_bytes

    def table(self, layer: int) -> int:
        """Return the address of a layer's page table."""
        return self._group_of[layer].table

    def in_state(self, part: str, layer: int) -> int | None:
        """Return the place of a layer's part of a state ("rule" or "rows"); None if it has none."""
        return self._offsets.get((part, layer))

    @property
    def state_table(self) -> int:
        """Return the address of the table of states."""
        return self._groups[0].state_table

    @property
    def bytes_of_states(self) -> int:
        return sum(len(group.states) for group in self._groups) * self._state_parts * self.part_bytes

    async def reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence, of which positions before `first` are stored, has pages for first .. length - 1.

        Raises BackendError when memory is out.
        """
        for group in self._groups:
            while group.pages.lacks(slot, first, length):
                capacity = group.pages.grown()
                if capacity == group.pages.capacity:
                    raise BackendError(
                        "wasm.no-memory-left",
                        "There is no memory left for conversations. Close one, or start a new chat.",
                    )
                await self._grow(group, _extents(capacity))
                group.pages.add_capacity(capacity)
            while group.pages.lacks_states(slot, first, length):
                group.states.append(await self._claim(self._state_parts))
                group.pages.add_states(len(group.states))
            await self._copy_others_page(group, slot, first)
            group.pages.take(slot, first, length)
            self._write_rows(group)

    def limit(self, nbytes: int | None) -> None:
        if group := self._limited:
            extents = None if nbytes is None else nbytes // (group.parts * self.part_bytes)
            group.pages.limit(None if extents is None else EXTENT * extents)

    @property
    def limited(self) -> PageTable | None:
        return self._limited.pages if self._limited else None

    @property
    def limited_bytes(self) -> int:
        group = self._limited
        extents = len(group.extents) * group.parts if group else 0
        return (extents + sum(self._free.values())) * self.part_bytes

    @property
    def _limited(self) -> _Group | None:
        return next((group for group in self._groups if not group.pages.window), None)

    async def shrink(self, capacity: int) -> dict[int, int]:
        """Shrink the pool to `capacity` pages without a window, or slightly more, so that whole extents are left. The
        rest is free for others (`take`). Returns the new index of each page that moved."""
        group, extents = self._limited, _extents(capacity)
        if group is None or extents >= len(group.extents):
            return {}
        moves = group.pages.moves(extents * EXTENT)
        for page, new in moves.items():
            await self._copy(self._places(group, page), self._places(group, new))
        group.pages.shrink(extents * EXTENT, moves)
        self._write_rows(group)
        for first in group.extents[extents:]:
            self._put_back(first, group.parts)
        del group.extents[extents:]
        return moves

    @property
    def shared_table(self) -> PageTable | None:
        """The table of all layers, if none has a window: sequences can share its pages."""
        only = self._groups[0].pages if len(self._groups) == 1 else None
        return only if only and not only.window else None

    def page_bytes(self, tier: Tier) -> int:
        """Return the bytes of a page of all layers that share a table, as `read_page` gives it: [layer][kv head], then
        the rows of convolutions."""
        return sum(nbytes for _, nbytes in self.tables(tier))

    def tables(self, tier: Tier) -> list[tuple[PageTable, int]]:
        """Return each table, and the bytes of a page of this tier in all of the table's layers."""
        rows = len(self._convolutions) * self._rows_bytes
        if self._differ:
            sizes = [sum(self._page_bytes(self._caches[layer]) for layer in group.layers) for group in self._groups]
        else:
            sizes = [len(group.layers) * self._heads * self._tier_bytes[tier] for group in self._groups]
        return [
            (group.pages, size + (rows if group.pages.sight else 0))
            for group, size in zip(self._groups, sizes, strict=True)
        ]

    def there(self, tier: Tier) -> int:
        """Return the bytes of all pages of this tier, in use or not. The hot tier includes what was given back."""
        if tier is Tier.HOT:
            others = (
                self.bytes_of_others
                + self.bytes_of_states
                + sum(self.there(each) for each in Tier if each is not Tier.HOT)
            )
            return self._parts * self.part_bytes - others
        return sum(len(group.demoted[tier]) * group.parts for group in self._groups) * self.part_bytes

    @property
    def bytes_of_others(self) -> int:
        """Return the bytes that `take` gave and that were not given back."""
        extents = sum(
            (len(group.extents) + sum(map(len, group.demoted.values()))) * group.parts for group in self._groups
        )
        return (self._parts - extents - sum(self._free.values())) * self.part_bytes - self.bytes_of_states

    async def read_page(self, page: int) -> bytes:
        """Return the bytes of a page of `shared_table`, in the kernels' own layout. Their number tells the tier."""
        (group,), nbytes = self._groups, self.page_bytes(tier_of(page))
        between, places = await self._between(nbytes), self._places(group, page)
        try:
            await self._copy(places, _side_by_side(between, places))
            return await self._host.read(between, nbytes)
        finally:
            self.give_back(between, nbytes)

    async def write_page(self, page: int, data: bytes) -> None:
        """Write the bytes of `read_page` to a page, which then has their tier for all its holders."""
        (group,) = self._groups
        tier = next(each for each in Tier if self.page_bytes(each) == len(data))
        new = await self._new_demoted(group, tier) if tier else page
        try:
            between = await self._between(len(data))
            try:
                self._host.write(between, data)
                places = self._places(group, new)
                await self._copy(_side_by_side(between, places), places)
            finally:
                self.give_back(between, len(data))
        except BaseException:
            if tier:
                group.pages.drop([new])
            raise
        if tier:
            group.pages.demote(page, new)
            self._write_rows(group)

    def release(self, slot: int, length: int) -> None:
        for group in self._groups:
            group.pages.release(slot, length)

    def sees(self, slot: int, position: int) -> bool:
        return all(group.pages.sees(slot, position) for group in self._groups)

    def write_tables(self) -> None:
        """Write all tables again."""
        for group in self._groups:
            group.pages.changed.update(range(len(group.pages.rows)))
            self._write_rows(group)

    async def take(self, nbytes: int) -> int:
        """Return the address of memory for other data, between pages, in whole parts. Within a budget, pages make way
        for it first (`make_way`).

        Raises BackendError when memory is out.
        """
        parts = -(-nbytes // self.part_bytes)
        if not any(count >= parts for count in self._free.values()):
            await self.make_way(parts * self.part_bytes)
        return await self._between(nbytes)

    def give_back(self, address: int, nbytes: int) -> None:
        """Give memory back that `take` gave."""
        self._put_back((address - self._arena.end) // self.part_bytes, -(-nbytes // self.part_bytes))

    def _put_back(self, first: int, parts: int) -> None:
        self._free[first] = parts
        for before in sorted(self._free, reverse=True):
            if (after := before + self._free[before]) in self._free:
                self._free[before] += self._free.pop(after)

    async def _between(self, nbytes: int) -> int:
        """As `take`, but for a short time, in which no page is moved."""
        return self._arena.end + await self._claim(-(-nbytes // self.part_bytes)) * self.part_bytes

    def _page_bytes(self, op: Attention) -> int:
        """Return the bytes of a hot page in a layer."""
        return op.num_key_value_heads * head_page_bytes(op.head_dim, self._limbs)

    async def _copy_others_page(self, group: _Group, slot: int, first: int) -> None:
        """Copy what is stored before `first` in a page shared with others to one of the sequence's own pages."""
        page = group.pages.others_page(slot, first)
        if page is None:
            return
        own = group.pages.new_page()
        try:
            await self._copy(self._places(group, page), self._places(group, own))
            if (old := group.pages.state_of(page)) is not None:
                new = group.pages.copy_state(slot, page, own)
                source, target = (
                    _Place(self._state_address(group, state), self._state_bytes, 0, 1) for state in (old, new)
                )
                await self._copy([source], [target])
        except BaseException:
            group.pages.drop([own])
            raise
        group.pages.replace(slot, first // PAGE, own)

    def _places(self, group: _Group, page: int) -> list[_Place]:
        """Return the place of a page, or its places in each layer if these differ, and that of its rows of convolutions
        if it has any."""
        places = [self._place(group, page)]
        if self._differ:
            part, place = divmod(int(self._entries(group, np.array([page]))[0]), EXTENT)
            places = []
            for layer in group.layers:
                op = self._caches[layer]
                nbytes = head_page_bytes(op.head_dim, self._limbs)
                address = self.base(layer) + part * self.part_bytes + place * nbytes
                places.append(_Place(address, nbytes, EXTENT * nbytes, op.num_key_value_heads))
        if group.pages.sight and self._convolutions:
            part, place = divmod(int(self._entries(group, np.array([page]))[0]), EXTENT)
            rows = self.rows(self._convolutions[0]) + part * self.part_bytes + place * self._rows_bytes
            places.append(_Place(rows, self._rows_bytes, EXTENT * self._rows_bytes, len(self._convolutions)))
        return places

    def _place(self, group: _Group, page: int) -> _Place:
        entry, tier = int(self._entries(group, np.array([page]))[0]) % TIER_BIT, tier_of(page)
        part, place = divmod(entry, self._tier_pages[tier])
        nbytes = self._tier_bytes[tier]
        address = self._arena.end + part * self.part_bytes + place * nbytes
        return _Place(address, nbytes, self._tier_pages[tier] * nbytes, len(group.layers) * self._heads)

    async def _copy(self, sources: Sequence[_Place], targets: Sequence[_Place]) -> None:
        """Copy a page of all layers: all its pieces."""
        copies = [
            Op(OpKind.COPY, (source.address, target.address, source.nbytes, source.step, source.pieces, target.step))
            for source, target in zip(sources, targets, strict=True)
        ]
        self._host.write(self._copying, program_bytes(copies, self._state))
        await self._host.run(self._copying, 1)

    async def _new_demoted(self, group: _Group, tier: Tier) -> int:
        """Return a page of a lower tier, as `PageTable.new_demoted`. Raises BackendError when memory is out."""
        new = group.pages.new_demoted(tier)
        while new is None:
            first = await self._claim(group.parts)
            group.demoted[tier].append(first)
            group.pages.add_demoted(tier, len(group.demoted[tier]) * self._tier_pages[tier])
            new = group.pages.new_demoted(tier)
        return new

    async def demote(self, pages: Sequence[tuple[int, Tier]], renamed: Callable[[int, int], None]) -> None:
        """As `PageStore.demote`. Raises BackendError when memory is out."""
        for page, tier in pages:
            renamed(page, await self._demote(page, tier))

    async def _demote(self, page: int, tier: Tier) -> int:
        """Return the page of a lower tier, now held by all holders of the old one."""
        (group,) = self._groups
        new, old = await self._new_demoted(group, tier), tier_of(page)
        source, target = self._place(group, page), self._place(group, new)
        places = (source.address, target.address, old, tier, source.step, target.step)
        sizes = (self._heads, len(group.layers), self.part_bytes, self._head_dim, self._limbs)
        try:
            self._host.write(self._copying, program_bytes([Op(OpKind.DEMOTE, (*places, *sizes))], self._state))
            await self._host.run(self._copying, 1)
        except BaseException:
            group.pages.drop([new])
            raise
        group.pages.demote(page, new)
        self._write_rows(group)
        return new

    def _write_rows(self, group: _Group) -> None:
        """Write the changed rows to the place from which the kernels read them."""
        for slot in group.pages.changed:
            row = self._entries(group, group.pages.rows[slot])
            self._host.write(group.table + slot * row.nbytes, row.tobytes())
            if group.states:
                row = np.array(group.states, np.uint32)[group.pages.state_rows[slot]]
                row = row * np.uint32(self.part_bytes) + np.uint32(self._arena.end)
                self._host.write(group.state_table + slot * row.nbytes, row.tobytes())
        group.pages.changed.clear()

    def _state_address(self, group: _Group, state: int) -> int:
        return self._arena.end + group.states[state] * self.part_bytes

    async def _claim(self, parts: int) -> int:
        """Return the first of `parts` consecutive parts: some that were given back, or new ones."""
        for first, count in sorted(self._free.items()):
            if count >= parts:
                del self._free[first]
                if count > parts:
                    self._free[first + parts] = count - parts
                return first
        first = self._parts
        self._parts += parts
        try:
            await self._host.reserve(self.end)
        except BaseException:
            self._parts -= parts
            raise
        return first

    async def _grow(self, group: _Group, extents: int) -> None:
        """Grow to `extents` extents of hot pages, from what was given back as far as possible."""
        parts, wanted = group.parts, extents - len(group.extents)
        given_back = sum(count // parts for count in self._free.values())
        claimed = [await self._claim(parts) for _ in range(min(given_back, wanted))]
        if (new := wanted - len(claimed)) > 0:
            try:
                first = await self._claim(new * parts)
            except BaseException:
                for each in claimed:
                    self._put_back(each, parts)
                raise
            claimed += [first + number * parts for number in range(new)]
        group.extents.extend(claimed)

    def _add_extents(self, group: _Group, extents: int, first: int) -> None:
        """`first`: the part in which the first extent begins."""
        group.extents.extend(first + number * group.parts for number in range(extents))

    def _entries(self, group: _Group, pages: np.ndarray) -> np.ndarray:
        """Return the entries of a table for numbers of pages: uint32 of the same shape."""
        entries, tiers, numbers = np.zeros(pages.shape, np.uint32), pages >> TIER_SHIFT, pages % (1 << TIER_SHIFT)
        for tier in Tier:
            there, size = tiers == tier, self._tier_pages[tier]
            if there.any():
                begins = np.array(group.demoted[tier] if tier else group.extents, np.uint32)
                entries[there] = begins[numbers[there] // size] * size + numbers[there] % size + tier * TIER_BIT
        return entries


def _side_by_side(address: int, places: Sequence[_Place]) -> list[_Place]:
    """Return places for the same pieces, one behind the other from `address` on."""
    found = []
    for place in places:
        found.append(_Place(address, place.nbytes, place.nbytes, place.pieces))
        address += place.nbytes * place.pieces
    return found


async def _nothing(nbytes: int) -> None: ...


def _extents(capacity: int) -> int:
    """Return how many extents hold `capacity` pages."""
    return -(-capacity // EXTENT)
