"""Pages of keys and values on the GPU: float32, one buffer a layer, [page][key | value][kv head][64 tokens][head_dim].

Layers with the same window have a page table and a pool, which starts small and grows when it runs out; what it held is
copied on the GPU.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from py_core.backends.base import BackendError
from py_core.backends.page_table import PAGE, PageTable, layer_groups, pages_of
from py_core.backends.webgpu.host import PAGES, Binding, Host
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


@dataclass(frozen=True)
class _Group:
    """Layers with the same window: their pages, the table on the GPU, and the layers' buffers."""

    pages: PageTable
    table: Binding
    buffers: dict[int, int]


class KVPages:
    """`generation` changes when the buffers do: bindings recorded before must then be recorded again."""

    def __init__(self, host: Host, config: ModelConfig, graph: Graph, slots: int) -> None:
        self._host = host
        self.page_bytes = 2 * config.num_key_value_heads * PAGE * config.head_dim * 4
        self._between = host.create_buffer(self.page_bytes, "a page that is copied")
        groups = layer_groups(graph, config.context_length)
        self._groups = [self._group(PageTable(slots, config.context_length, each), groups[each]) for each in groups]
        self._group_of = {layer: group for group in self._groups for layer in group.buffers}
        self.pages_per_slot = pages_of(config.context_length)
        self.generation = 0

    def binding(self, layer: int) -> Binding:
        """The pages of a layer."""
        group = self._group_of[layer]
        return Binding(group.buffers[layer], 0, group.pages.capacity * self.page_bytes)

    def table(self, layer: int) -> Binding:
        """The page table of a layer, which stays where it is."""
        return self._group_of[layer].table

    async def reserve(self, slot: int, first: int, length: int) -> None:
        """Make sure that a sequence, of which positions before `first` are stored, has pages for first .. length - 1.

        Raises BackendError when memory is out.
        """
        for group in self._groups:
            while group.pages.lacks(slot, first, length):
                capacity = group.pages.grown()
                if capacity == group.pages.capacity or capacity * self.page_bytes > self._host.adapter.max_binding_size:
                    raise BackendError("The conversations need more memory than this GPU gives. Start a new chat.")
                await self._resize(group, capacity)
                group.pages.add_capacity(capacity)
            self._copy_others_page(group, slot, first)
            group.pages.take(slot, first, length)
            self._write_rows(group)

    def limit(self, nbytes: int | None) -> None:
        if group := self._limited:
            most = self._host.adapter.max_binding_size // self.page_bytes
            if nbytes is not None:
                most = min(most, nbytes // (len(group.buffers) * self.page_bytes))
            group.pages.limit(most)

    @property
    def limited(self) -> PageTable | None:
        return self._limited.pages if self._limited else None

    @property
    def limited_bytes(self) -> int:
        return self._limited.pages.capacity * len(self._limited.buffers) * self.page_bytes if self._limited else 0

    @property
    def _limited(self) -> _Group | None:
        return next((group for group in self._groups if not group.pages.window), None)

    async def shrink(self, capacity: int) -> dict[int, int]:
        """Have so many pages without a window only, as many as are held or more; where which page was moved to."""
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
        """The table of all layers, where none has a window: sequences can share its pages."""
        only = self._groups[0].pages if len(self._groups) == 1 else None
        return only if only and not only.window else None

    async def read_page(self, page: int) -> bytes:
        """The bytes of a page of `shared_table`: those of each layer, one after the other."""
        offset, buffers = page * self.page_bytes, self._groups[0].buffers.values()
        parts = [self._host.read(buffer, offset, self.page_bytes) for buffer in buffers]
        return b"".join(await asyncio.gather(*parts))

    def write_page(self, page: int, data: bytes) -> None:
        """Put the bytes of `read_page` in a page."""
        view = memoryview(data)
        for layer, buffer in enumerate(self._groups[0].buffers.values()):
            part = view[layer * self.page_bytes : (layer + 1) * self.page_bytes]
            self._host.write(buffer, page * self.page_bytes, part)

    @property
    def tables(self) -> list[tuple[PageTable, int]]:
        """Each table, and the bytes that a page of it has in all of its layers."""
        return [(group.pages, len(group.buffers) * self.page_bytes) for group in self._groups]

    def release(self, slot: int, length: int) -> None:
        for group in self._groups:
            group.pages.release(slot, length)

    def sees(self, slot: int, position: int) -> bool:
        return all(group.pages.sees(slot, position) for group in self._groups)

    def _copy_others_page(self, group: _Group, slot: int, first: int) -> None:
        """What is stored before `first` in a page that others hold, too, comes into one of the sequence's own."""
        page = group.pages.others_page(slot, first)
        if page is None:
            return
        own = group.pages.new_page()
        self._copy_page(group, page, own)
        group.pages.replace(slot, first // PAGE, own)

    def _copy_page(self, group: _Group, page: int, new: int) -> None:
        for buffer in group.buffers.values():
            # WebGPU copies nothing within a buffer.
            self._host.copy(buffer, page * self.page_bytes, self._between, 0, self.page_bytes)
            self._host.copy(self._between, 0, buffer, new * self.page_bytes, self.page_bytes)

    def _write_rows(self, group: _Group) -> None:
        """Bring the rows that have changed to the GPU."""
        for slot in group.pages.changed:
            row = group.pages.rows[slot]
            self._host.write(group.table.buffer, slot * row.nbytes, row.tobytes())
        group.pages.changed.clear()

    def _group(self, pages: PageTable, layers: list[int]) -> _Group:
        nbytes = pages.rows.nbytes
        table = Binding(self._host.create_buffer(nbytes, "page table"), 0, nbytes)
        size = pages.capacity * self.page_bytes
        return _Group(pages, table, {layer: self._host.create_buffer(size, PAGES) for layer in layers})

    async def _resize(self, group: _Group, capacity: int) -> None:
        """Buffers for so many pages, with what was in those before. They change one after the other, so that no more is
        taken than one has; where the GPU has no room for the next, those before may be larger than they need be.

        Raises BackendError where it has none.
        """
        nbytes = min(capacity, group.pages.capacity) * self.page_bytes
        for layer, old in group.buffers.items():
            new = self._host.create_buffer(capacity * self.page_bytes, PAGES)
            try:
                await self._host.check()  # a browser says only then that there is no room
            except BaseException:
                self._host.destroy_buffer(new)
                raise
            self._host.copy(old, 0, new, 0, nbytes)
            self._host.destroy_buffer(old)
            group.buffers[layer] = new
            self.generation += 1
