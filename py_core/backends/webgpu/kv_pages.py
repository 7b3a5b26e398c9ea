"""Pages of 64 tokens that hold keys and values, and which sequence holds which page.

One buffer a layer: [page][key | value][kv head][64 tokens][head_dim]. A sequence (a slot) has a row of the page table.
The pool starts small and doubles when it runs out; what it held is copied on the GPU.
"""

from __future__ import annotations

import numpy as np

from py_core.backends.base import BackendError
from py_core.backends.webgpu.host import Binding, Host
from py_core.models.config import ModelConfig

PAGE = 64


class KVPages:
    """`generation` changes when the buffers do: whoever recorded bindings must do so again."""

    def __init__(self, host: Host, config: ModelConfig, slots: int, context_length: int, bytes_each: int) -> None:
        self._host = host
        self.pages_per_slot = -(-context_length // PAGE)
        self.page_bytes = 2 * config.num_key_value_heads * PAGE * config.head_dim * bytes_each
        self._table = np.zeros((slots, self.pages_per_slot), np.uint32)
        self.table = host.create_buffer(self._table.nbytes, "page table")
        self.table_binding = Binding(self.table, 0, self._table.nbytes)
        self._capacity = min(16, slots * self.pages_per_slot)
        self._most = slots * self.pages_per_slot
        self._buffers = [self._new_buffer() for _ in range(config.num_hidden_layers)]
        self._free = list(range(self._capacity))[::-1]
        self._held: dict[int, list[int]] = {slot: [] for slot in range(slots)}
        self.generation = 0

    def binding(self, layer: int) -> Binding:
        return Binding(self._buffers[layer], 0, self._capacity * self.page_bytes)

    def reserve(self, slot: int, length: int) -> None:
        """Make sure that positions 0 .. length - 1 of a sequence have pages. Raises BackendError when memory is out."""
        held, wanted = self._held[slot], -(-length // PAGE)
        if wanted <= len(held):
            return
        while wanted - len(held) > len(self._free):
            self._grow()
        while len(held) < wanted:
            page = self._free.pop()
            self._table[slot, len(held)] = page
            held.append(page)
        self._host.write(self.table, slot * self._table.shape[1] * 4, self._table[slot].tobytes())

    def release(self, slot: int, length: int = 0) -> None:
        """Give back the pages that positions from `length` on are the only ones to use."""
        held, wanted = self._held[slot], -(-length // PAGE)
        self._free.extend(reversed(held[wanted:]))
        del held[wanted:]

    def _grow(self) -> None:
        old = self._capacity
        capacity = min(2 * old, self._most)
        if capacity * self.page_bytes > self._host.adapter.max_binding_size or capacity == old:
            raise BackendError("The conversations need more memory than this GPU gives. Start a new chat.")
        self._capacity = capacity
        for layer, buffer in enumerate(self._buffers):
            self._buffers[layer] = self._new_buffer()
            self._host.copy(buffer, self._buffers[layer], old * self.page_bytes)
            self._host.destroy_buffer(buffer)
        self._free = list(range(old, capacity))[::-1] + self._free
        self.generation += 1

    def _new_buffer(self) -> int:
        return self._host.create_buffer(self._capacity * self.page_bytes, "keys and values")
