"""Pages of keys and values on the GPU: float32, one buffer a layer, [page][key | value][kv head][64 tokens][head_dim].

The pool starts small and doubles when it runs out; what it held is copied on the GPU.
"""

from __future__ import annotations

from py_core.backends.base import BackendError
from py_core.backends.page_table import PAGE, PageTable
from py_core.backends.webgpu.host import Binding, Host
from py_core.models.config import ModelConfig


class KVPages:
    """`generation` changes when the buffers do: bindings recorded before must then be recorded again."""

    def __init__(self, host: Host, config: ModelConfig, slots: int, context_length: int) -> None:
        self._host = host
        self._pages = PageTable(slots, context_length, capacity=16)
        self.pages_per_slot = self._pages.pages_per_slot
        self.page_bytes = 2 * config.num_key_value_heads * PAGE * config.head_dim * 4
        self.table = host.create_buffer(self._pages.rows.nbytes, "page table")
        self.table_binding = Binding(self.table, 0, self._pages.rows.nbytes)
        self._buffers = [self._new_buffer() for _ in range(config.num_hidden_layers)]
        self.generation = 0

    def binding(self, layer: int) -> Binding:
        return Binding(self._buffers[layer], 0, self._pages.capacity * self.page_bytes)

    def reserve(self, slot: int, length: int) -> None:
        """Make sure that positions 0 .. length - 1 of a sequence have pages. Raises BackendError when memory is out."""
        while self._pages.lacks(slot, length):
            self._grow()
        if self._pages.take(slot, length):
            row = self._pages.rows[slot]
            self._host.write(self.table, slot * row.nbytes, row.tobytes())

    def release(self, slot: int, length: int) -> None:
        self._pages.release(slot, length)

    def _grow(self) -> None:
        old = self._pages.capacity
        capacity = min(2 * old, self._pages.most)
        if capacity * self.page_bytes > self._host.adapter.max_binding_size or capacity == old:
            raise BackendError("The conversations need more memory than this GPU gives. Start a new chat.")
        self._pages.add_capacity(capacity)
        for layer, buffer in enumerate(self._buffers):
            self._buffers[layer] = self._new_buffer()
            self._host.copy(buffer, self._buffers[layer], old * self.page_bytes)
            self._host.destroy_buffer(buffer)
        self.generation += 1

    def _new_buffer(self) -> int:
        return self._host.create_buffer(self._pages.capacity * self.page_bytes, "keys and values")
