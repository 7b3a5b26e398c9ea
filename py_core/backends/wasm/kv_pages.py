"""Pages of keys and values in the kernels' memory: EXTENT pages of a head lie together, [extent][layer][kv head][page].

Layers with the same window have a page table, and extents of their own, one after the other as each is needed. What one
layer takes of an extent is a part; all parts have the same size. An entry of a table is EXTENT * (the number of the
part in which the extent begins) + the page's place in the extent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from py_core.backends.base import BackendError
from py_core.backends.page_table import PAGE, PageTable, layer_groups
from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.layout import EXTENT, Arena, Op, OpKind, head_page_bytes, program_bytes
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


@dataclass(frozen=True)
class _Group:
    """Layers with the same window: their pages, where the table lies, and the part in which each extent begins."""

    layers: list[int]
    pages: PageTable
    table: int
    extents: list[int]


class KVPages:
    """Takes the tables' room from the arena. The pages begin where the arena ends, so that they can grow."""

    def __init__(self, config: ModelConfig, graph: Graph, limbs: int, slots: int, arena: Arena, state: int) -> None:
        self._heads, self._head_bytes = config.num_key_value_heads, head_page_bytes(config.head_dim, limbs)
        self.part_bytes = EXTENT * self._heads * self._head_bytes
        self._state = state
        self._copying = arena.take(len(program_bytes([Op(OpKind.COPY)], state)))
        self._arena, self._parts = arena, 0
        self._free: dict[int, int] = {}
        """Parts that were given back: how many follow one another, by the first."""
        self._groups: list[_Group] = []
        for window, layers in layer_groups(graph, config.context_length).items():
            pages = PageTable(slots, config.context_length, window)
            group = _Group(layers, pages, arena.take(pages.rows.nbytes), [])
            self._groups.append(group)
            extents = _extents(pages.capacity)
            self._add_extents(group, extents, self._parts)
            self._parts += extents * len(layers)
        self._group_of = {layer: group for group in self._groups for layer in group.layers}

    @property
    def end(self) -> int:
        """Where the memory ends that the pages take now."""
        return self._arena.end + self._parts * self.part_bytes

    def base(self, layer: int) -> int:
        """The address from which the kernels count a layer's parts: its own in an extent that begins with part 0.

        The arena must be complete by then.
        """
        return self._arena.end + self._group_of[layer].layers.index(layer) * self.part_bytes

    def table(self, layer: int) -> int:
        """The address of a layer's page table."""
        return self._group_of[layer].table

    async def reserve(self, host: KernelHost, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence, of which positions before `first` are stored, has pages for first .. length - 1.

        Raises BackendError when memory is out.
        """
        for group in self._groups:
            while group.pages.lacks(slot, first, length):
                capacity = group.pages.grown()
                if capacity == group.pages.capacity:
                    raise BackendError("The conversations have no more memory. Close one, or start a new chat.")
                extents = _extents(capacity) - len(group.extents)
                self._add_extents(group, extents, await self._claim(host, extents * len(group.layers)))
                group.pages.add_capacity(capacity)
            await self._copy_others_page(host, group, slot, first)
            group.pages.take(slot, first, length)
            self._write_rows(host, group)

    def limit(self, nbytes: int) -> None:
        """Let the pages of layers without a window take no more, where that is enough for one conversation."""
        for group in self._groups:
            if not group.pages.window:
                group.pages.limit(nbytes // (len(group.layers) * self._heads * self._head_bytes))

    @property
    def shared_table(self) -> PageTable | None:
        """The table of all layers, where none has a window: sequences can share its pages."""
        only = self._groups[0].pages if len(self._groups) == 1 else None
        return only if only and not only.window else None

    @property
    def page_bytes(self) -> int:
        """What a page of all layers takes, where they share a table: [layer][kv head] as `read_page` gives it."""
        return sum(len(group.layers) for group in self._groups) * self._heads * self._head_bytes

    @property
    def tables(self) -> list[tuple[PageTable, int]]:
        """Each table, and the bytes that a page of it has in all of its layers."""
        return [(group.pages, len(group.layers) * self._heads * self._head_bytes) for group in self._groups]

    @property
    def bytes_of_others(self) -> int:
        """What `take` gave and nobody gave back."""
        extents = sum(len(group.extents) * len(group.layers) for group in self._groups)
        return (self._parts - extents - sum(self._free.values())) * self.part_bytes

    async def read_page(self, host: KernelHost, page: int) -> bytes:
        """The bytes of a page of `shared_table`, of which the kernels know the layout."""
        (group,), (address,) = self._groups, self._addresses(self._groups[0], [page])
        between = await self.take(host, self.page_bytes)
        try:
            await self._copy(host, group, address, EXTENT * self._head_bytes, between, self._head_bytes)
            return await host.read(between, self.page_bytes)
        finally:
            self.give_back(between, self.page_bytes)

    async def write_page(self, host: KernelHost, page: int, data: bytes) -> None:
        """Put the bytes of `read_page` in a page."""
        (group,), (address,) = self._groups, self._addresses(self._groups[0], [page])
        between = await self.take(host, self.page_bytes)
        try:
            host.write(between, data)
            await self._copy(host, group, between, self._head_bytes, address, EXTENT * self._head_bytes)
        finally:
            self.give_back(between, self.page_bytes)

    def release(self, slot: int, length: int) -> None:
        for group in self._groups:
            group.pages.release(slot, length)

    def sees(self, slot: int, position: int) -> bool:
        return all(group.pages.sees(slot, position) for group in self._groups)

    def write_tables(self, host: KernelHost) -> None:
        """Write all tables again."""
        for group in self._groups:
            group.pages.changed.update(range(len(group.pages.rows)))
            self._write_rows(host, group)

    async def take(self, host: KernelHost, nbytes: int) -> int:
        """The address of memory for something else, between pages: so much as parts take.

        Raises BackendError when memory is out.
        """
        return self._arena.end + await self._claim(host, -(-nbytes // self.part_bytes)) * self.part_bytes

    def give_back(self, address: int, nbytes: int) -> None:
        """Memory that `take` gave may be taken again."""
        first, parts = (address - self._arena.end) // self.part_bytes, -(-nbytes // self.part_bytes)
        self._free[first] = parts
        for before in sorted(self._free, reverse=True):
            if (after := before + self._free[before]) in self._free:
                self._free[before] += self._free.pop(after)

    async def _copy_others_page(self, host: KernelHost, group: _Group, slot: int, first: int) -> None:
        """What is stored before `first` in a page that others hold, too, comes into one of the sequence's own."""
        page = group.pages.others_page(slot, first)
        if page is None:
            return
        own = group.pages.new_page()
        try:
            (source, target), stride = self._addresses(group, [page, own]), EXTENT * self._head_bytes
            await self._copy(host, group, source, stride, target, stride)
        except BaseException:
            group.pages.drop([own])
            raise
        group.pages.replace(slot, first // PAGE, own)

    def _addresses(self, group: _Group, pages: list[int]) -> list[int]:
        """Where each page of the first layer's first head lies; those of the others follow in steps of an extent's."""
        return [
            self._arena.end + int(entry) // EXTENT * self.part_bytes + int(entry) % EXTENT * self._head_bytes
            for entry in self._entries(group, np.array(pages))
        ]

    async def _copy(
        self, host: KernelHost, group: _Group, source: int, source_stride: int, target: int, target_stride: int
    ) -> None:
        """Copy a page of all heads of all layers."""
        pieces = len(group.layers) * self._heads
        copy = Op(OpKind.COPY, (source, target, self._head_bytes, source_stride, pieces, target_stride))
        host.write(self._copying, program_bytes([copy], self._state))
        await host.run(self._copying, 1)

    def _write_rows(self, host: KernelHost, group: _Group) -> None:
        """Bring the rows that have changed to where the kernels read them."""
        for slot in group.pages.changed:
            row = self._entries(group, group.pages.rows[slot])
            host.write(group.table + slot * row.nbytes, row.tobytes())
        group.pages.changed.clear()

    async def _claim(self, host: KernelHost, parts: int) -> int:
        """The first of so many parts that follow one another: some that were given back, or new ones."""
        for first, count in sorted(self._free.items()):
            if count >= parts:
                del self._free[first]
                if count > parts:
                    self._free[first + parts] = count - parts
                return first
        first = self._parts
        self._parts += parts
        try:
            await host.reserve(self.end)
        except BackendError:
            self._parts -= parts
            raise
        return first

    def _add_extents(self, group: _Group, extents: int, first: int) -> None:
        """`first`: the part in which the first of them begins."""
        group.extents.extend(first + number * len(group.layers) for number in range(extents))

    def _entries(self, group: _Group, pages: np.ndarray) -> np.ndarray:
        """Entries of a table for numbers of pages: uint32 of the same shape."""
        begins = np.array(group.extents, np.uint32)
        return begins[pages // EXTENT] * np.uint32(EXTENT) + pages % np.uint32(EXTENT)


def _extents(capacity: int) -> int:
    """How many hold so many pages."""
    return -(-capacity // EXTENT)
