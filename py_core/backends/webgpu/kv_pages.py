"""Pages of keys and values on the GPU: float32, [layer][page][key | value][kv head][64 tokens][head_dim].

Layers with the same window have a page table and a pool, which starts small and grows when it runs out. Its contents
are copied on the GPU. A pool is one buffer, or more where that would be too large for the adapter. Demoted pages lie in
buffers of their own (demoted_pages.py).

The rows of a convolution (page_table.py) have a buffer, too: [page][row]. States have one for each delta rule and each
convolution, [state], and a table as pages have one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.demoted_pages import DemotedPages
from py_core.backends.webgpu.host import PAGES, Binding, Host
from py_core.backends.webgpu.settings import DEFAULTS, DeviceSettings
from py_core.backends.webgpu.shaders import Constant
from py_core.messages import Message
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_table import (
    PAGE,
    STATES,
    PageTable,
    head_room,
    kept_rows,
    layer_groups,
    pages_of,
    sight_of,
    state_sizes,
    tier_of,
    with_room,
)
from py_core.paging.tiers import Tier

STATES_LABEL = "states"
_ALIGNMENT = 256
_CONVERSATIONS = 2
"""Conversations of full length for which a buffer of several layers must have room: otherwise it has fewer layers."""
_NO_ROOM = Message(
    "gpu.no-memory-left", "The conversations need more memory than is free on this GPU. Start a new chat."
)


@dataclass
class _Pool:
    """Layers of one buffer: where each begins, and the pages for which it has room."""

    buffer: int
    starts: dict[int, int]
    capacity: int


@dataclass(frozen=True)
class _Group:
    """Layers with the same window: their pages, the table on the GPU, and the layers' buffers. Convolutions are among
    the layers without a window."""

    pages: PageTable
    table: Binding
    pools: list[_Pool]
    state_table: Binding

    @property
    def layers(self) -> list[int]:
        return [layer for pool in self.pools for layer in pool.starts]


class KVPages:
    """`generation` changes when the buffers do: earlier bindings must then be recorded again.

    With `pipeline` (`KernelBuilder.pipeline`) pages may be demoted, if all layers share a table.
    """

    def __init__(
        self, host: Host, config: ModelConfig, graph: Graph, slots: int, pipeline: Callable[..., int] | None = None,
        settings: DeviceSettings = DEFAULTS,
    ) -> None:  # fmt: skip
        self._host = host
        sizes = {
            layer: 2 * op.num_key_value_heads * PAGE * head_room(op.head_dim) * 4 for layer, op in graph.caches.items()
        }
        self.page_bytes = max(sizes.values())
        """The bytes of a page in the layer with most or largest heads."""
        self._state_bytes = state_sizes(graph)
        convolutions = {} if self._state_bytes else graph.convolutions
        rows = {layer: kept_rows(graph) * op.out.width * 4 for layer, op in convolutions.items()}
        most = max(self.page_bytes, *rows.values(), *self._state_bytes.values(), 0)
        self._between = host.create_buffer(most, "a page that is copied")
        self._states = {
            part: host.create_buffer(STATES * size, STATES_LABEL) for part, size in self._state_bytes.items()
        }
        self._groups = []
        self._nbytes: dict[int, int] = {}
        """The bytes of a page in each layer."""
        for window, group in layer_groups(graph, config.context_length).items():
            sight, states = 0 if window else sight_of(graph), STATES if self._states else 0
            pages = PageTable(slots, config.context_length, window, sight, states)
            self._nbytes |= {layer: sizes[layer] for layer in group} | (rows if pages.sight else {})
            self._groups.append(self._group(pages, [*group, *rows] if pages.sight else group))
        self._group_of = {layer: group for group in self._groups for layer in group.layers}
        self.pages_per_slot = pages_of(config.context_length)
        self.generation = 0
        tiered = pipeline is not None and self.shared_table is not None
        layers = len(self._group_of)
        self._demoted = (
            DemotedPages(host, with_room(config), layers, pipeline, settings) if pipeline and tiered else None
        )

    def binding(self, layer: int) -> Binding:
        """Return the pages of a layer."""
        group = self._group_of[layer]
        pool = next(pool for pool in group.pools if layer in pool.starts)
        return Binding(pool.buffer, pool.starts[layer], pool.capacity * self._nbytes[layer])

    def table(self, layer: int) -> Binding:
        """Return the page table of a layer. It never moves."""
        return self._group_of[layer].table

    def rows(self, layer: int) -> tuple[Binding, Binding]:
        """Return the table by which a convolution finds its rows, and the rows."""
        if self._states:
            return self._in_states("rows", layer)
        return self.table(layer), self.binding(layer)

    def states_of(self, layer: int) -> tuple[Binding, Binding]:
        """Return the table of states, and a delta rule's part of all states."""
        return self._in_states("rule", layer)

    def _in_states(self, part: str, layer: int) -> tuple[Binding, Binding]:
        (group,), key = self._groups, (part, layer)
        return group.state_table, Binding(self._states[key], 0, group.pages.states * self._state_bytes[key])

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers that a page may have."""
        return tuple(Tier) if self._demoted else (Tier.HOT,)

    @property
    def reader(self) -> tuple[dict[str, str], dict[str, Constant]]:
        """Return snippets and constants of a kernel that reads pages of all these tiers."""
        return ({"kv_quads": "kv_quads_demoted"}, self._demoted.constants) if self._demoted else ({}, {})

    def demoted(self, layer: int) -> tuple[Binding, ...]:
        """Return the bindings of a kernel besides the hot pages: any buffer as long as no page was demoted."""
        if self._demoted is None:
            return ()
        at = self._group_of[layer].layers.index(layer)
        return (self._demoted.bindings[at] if self._demoted.bindings else self.table(layer),)

    async def demote(self, pages: Sequence[tuple[int, Tier]], renamed: Callable[[int, int], None]) -> None:
        """As `PageStore.demote`. Raises BackendError when memory is out."""
        (group,), new = self._groups, list[int]()
        assert self._demoted
        try:
            for _, tier in pages:
                new.append(self._new_demoted(group, tier))
        except BackendError:
            group.pages.drop(new)
            raise
        # These copies do not write the pages that become free.
        old, hot = [page for page, _ in pages], [self.binding(layer) for layer in group.layers]
        self._demoted.demote(np.array(old, np.uint32), np.array(new, np.uint32), hot)
        for page, number in zip(old, new, strict=True):
            group.pages.demote(page, number)
            renamed(page, number)
        self._write_rows(group)

    async def reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence, of which positions before `first` are stored, has pages for first .. length - 1.

        Raises BackendError when memory is out.
        """
        for group in self._groups:
            while group.pages.lacks(slot, first, length):
                capacity = group.pages.grown()
                if capacity == group.pages.capacity or capacity > self._most(group):
                    raise BackendError(_NO_ROOM)
                await self._resize(group, capacity)
                group.pages.add_capacity(capacity)
            while group.pages.lacks_states(slot, first, length):
                await self._add_states(group, group.pages.states + 1)
            self._copy_others_page(group, slot, first)
            group.pages.take(slot, first, length)
            self._write_rows(group)

    def limit(self, nbytes: int | None) -> None:
        if group := self._limited:
            most = self._most(group)
            if nbytes is not None:
                most = min(most, nbytes // self._bytes_of_all(group))
            group.pages.limit(most)

    @property
    def limited(self) -> PageTable | None:
        return self._limited.pages if self._limited else None

    @property
    def limited_bytes(self) -> int:
        return self._limited.pages.capacity * self._bytes_of_all(self._limited) if self._limited else 0

    @property
    def _limited(self) -> _Group | None:
        return next((group for group in self._groups if not group.pages.window), None)

    async def shrink(self, capacity: int) -> dict[int, int]:
        """Shrink the pool to `capacity` pages without a window (at least those in use). Returns the new index of each
        page that moved."""
        group = self._limited
        if group is None or capacity >= group.pages.capacity:
            return {}
        moves = group.pages.moves(capacity)
        for page, new in moves.items():
            self._copy_page(group, page, new)
        group.pages.shrink(capacity, moves)
        self._write_rows(group)
        await self._resize(group, capacity)
        return moves

    @property
    def shared_table(self) -> PageTable | None:
        """The table of all layers, if none has a window: sequences can share its pages."""
        only = self._groups[0].pages if len(self._groups) == 1 else None
        return only if only and not only.window else None

    async def read_page(self, page: int) -> bytes:
        """Return the bytes of a page of `shared_table`, one layer after the other: their number tells the tier."""
        if self._demoted and (tier := tier_of(page)):
            return b"".join(await self._demoted.read(page, tier))
        parts = [self._host.read(*place) for place in self._places(self._groups[0], page)]
        return b"".join(await asyncio.gather(*parts))

    async def write_page(self, page: int, data: bytes) -> None:
        """Write the bytes of `read_page` to a page, which then has their tier for all its holders.

        Raises BackendError when memory is out.
        """
        (group,) = self._groups
        view, first = memoryview(data), 0
        tier = next(tier for tier in self.tiers if self._tier_bytes(group, tier) == len(data))
        if self._demoted and tier:
            count = len(group.layers)
            nbytes = len(data) // count
            layers = [view[layer * nbytes : (layer + 1) * nbytes] for layer in range(count)]
            new = self._new_demoted(group, tier)
            self._demoted.write(new, layers)
            group.pages.demote(page, new)
            self._write_rows(group)
            return
        for buffer, offset, nbytes in self._places(group, page):
            self._host.write(buffer, offset, view[first : first + nbytes])
            first += nbytes

    def tables(self, tier: Tier) -> list[tuple[PageTable, int]]:
        """Return each table, and the bytes of a page of this tier in all of the table's layers."""
        return [(group.pages, self._tier_bytes(group, tier)) for group in self._groups]

    def there(self, tier: Tier) -> int:
        """Return the bytes of all pages of this tier, in use or not."""
        if self._demoted and tier:
            return self._demoted.there(tier)
        return sum(group.pages.capacity * self._bytes_of_all(group) for group in self._groups)

    def release(self, slot: int, length: int) -> None:
        for group in self._groups:
            group.pages.release(slot, length)

    def sees(self, slot: int, position: int) -> bool:
        return all(group.pages.sees(slot, position) for group in self._groups)

    def _bytes_of_all(self, group: _Group) -> int:
        """Return the bytes of a hot page in all layers of a group."""
        return sum(self._nbytes[layer] for layer in group.layers)

    def _most(self, group: _Group) -> int:
        """Return the most pages that a kernel can bind, and a buffer can hold."""
        limits, sizes = self._host.adapter, [[self._nbytes[layer] for layer in pool.starts] for pool in group.pools]
        in_buffers = (limits.max_buffer_size - _ALIGNMENT * len(self._nbytes)) // max(map(sum, sizes))
        return min(limits.max_binding_size // max(map(max, sizes)), in_buffers)

    def _tier_bytes(self, group: _Group, tier: Tier) -> int:
        """Return the bytes of a page of this tier in all layers of a group."""
        if self._demoted and tier:
            return len(group.layers) * self._demoted.page_bytes(tier)
        return self._bytes_of_all(group)

    def _new_demoted(self, group: _Group, tier: Tier) -> int:
        """As `PageTable.new_demoted`, if there is a page in the end. Raises BackendError when memory is out."""
        assert self._demoted
        new = group.pages.new_demoted(tier)
        if new is None:
            group.pages.add_demoted(tier, self._demoted.grow(tier))
            self.generation += 1
            new = group.pages.new_demoted(tier)
        assert new is not None
        return new

    def _copy_others_page(self, group: _Group, slot: int, first: int) -> None:
        """Copy what is stored before `first` in a page shared with others to one of the sequence's own pages."""
        page = group.pages.others_page(slot, first)
        if page is None:
            return
        own = group.pages.new_page()
        self._copy_page(group, page, own)
        if (old := group.pages.state_of(page)) is not None:
            new = group.pages.copy_state(slot, page, own)
            for part, buffer in self._states.items():
                nbytes = self._state_bytes[part]
                self._copy_piece(buffer, nbytes, old * nbytes, new * nbytes)
        group.pages.replace(slot, first // PAGE, own)

    def _copy_page(self, group: _Group, page: int, new: int) -> None:
        for (buffer, old, nbytes), (_, to, _) in zip(self._places(group, page), self._places(group, new), strict=True):
            self._copy_piece(buffer, nbytes, old, to)

    def _copy_piece(self, buffer: int, nbytes: int, old: int, new: int) -> None:
        # WebGPU cannot copy within a buffer.
        self._host.copy(buffer, old, self._between, 0, nbytes)
        self._host.copy(self._between, 0, buffer, new, nbytes)

    def _places(self, group: _Group, page: int) -> list[tuple[int, int, int]]:
        """Return the buffer, the offset and the bytes of a page in each layer."""
        return [
            (pool.buffer, start + page * self._nbytes[layer], self._nbytes[layer])
            for pool in group.pools
            for layer, start in pool.starts.items()
        ]

    def _laid_out(self, layers: Iterable[int], capacity: int) -> tuple[dict[int, int], int]:
        """Return where each layer begins in a buffer for `capacity` pages, and its bytes."""
        starts, end = {}, 0
        for layer in layers:
            starts[layer] = end
            end += -(-capacity * self._nbytes[layer] // _ALIGNMENT) * _ALIGNMENT
        return starts, end

    def _write_rows(self, group: _Group) -> None:
        """Bring the changed rows to the GPU."""
        for slot in group.pages.changed:
            row = group.pages.rows[slot]
            if self._demoted:
                row = self._demoted.entries(row)
            self._host.write(group.table.buffer, slot * row.nbytes, row.tobytes())
            if group.pages.states:
                row = group.pages.state_rows[slot]
                self._host.write(group.state_table.buffer, slot * row.nbytes, row.tobytes())
        group.pages.changed.clear()

    def _group(self, pages: PageTable, layers: list[int]) -> _Group:
        nbytes = pages.rows.nbytes
        table = Binding(self._host.create_buffer(nbytes, "page table"), 0, nbytes)
        of_states = Binding(self._host.create_buffer(nbytes, "page table"), 0, nbytes) if pages.states else table
        wanted = _CONVERSATIONS * pages.pages_per_slot * max(self._nbytes[layer] for layer in layers)
        together, pools = max(1, self._host.adapter.max_buffer_size // wanted), []
        for first in range(0, len(layers), together):
            starts, nbytes = self._laid_out(layers[first : first + together], pages.capacity)
            pools.append(_Pool(self._host.create_buffer(nbytes, PAGES), starts, pages.capacity))
        return _Group(pages, table, pools, of_states)

    async def _resize(self, group: _Group, capacity: int) -> None:
        """Make buffers for `capacity` pages, with the contents of the old ones, one after the other. If the GPU has no
        room for the next one, those before may be larger than necessary.

        Raises BackendError if it has none.
        """
        kept = min(capacity, group.pages.capacity)
        for pool in group.pools:
            starts, nbytes = self._laid_out(pool.starts, capacity)
            pieces = [(pool.starts[layer], start, kept * self._nbytes[layer]) for layer, start in starts.items()]
            pool.buffer = await self._moved(pool.buffer, pieces, nbytes, PAGES)
            pool.starts, pool.capacity = starts, capacity

    async def _add_states(self, group: _Group, count: int) -> None:
        """Let there be `count` states. Raises BackendError if the GPU has no room, or a kernel cannot bind them."""
        if count * max(self._state_bytes.values()) > self._host.adapter.max_binding_size:
            raise BackendError(_NO_ROOM)
        for part, nbytes in self._state_bytes.items():
            pieces = [(0, 0, group.pages.states * nbytes)]
            new = await self._moved(self._states[part], pieces, count * nbytes, STATES_LABEL)
            self._states[part] = new
        group.pages.add_states(count)

    async def _moved(self, old: int, pieces: Sequence[tuple[int, int, int]], nbytes: int, label: str) -> int:
        """Return a buffer of `nbytes` instead of an old one, with pieces of it: the old and new offset of each, and its
        bytes."""
        new = self._host.create_buffer(nbytes, label)
        try:
            await self._host.check()  # a browser reports only here that there is no room
        except BaseException:
            self._host.destroy_buffer(new)
            raise
        for source, target, size in pieces:
            self._host.copy(old, source, new, target, size)
        self._host.destroy_buffer(old)
        self.generation += 1
        return new
