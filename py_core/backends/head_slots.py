"""Adapters at the head's input that a backend holds, by the numbers that rows name, and how kernels read them.

web/kernels/head.c and wgsl_shaders/snippets/head_slots.wgsl declare a slot.
"""

from __future__ import annotations

import struct

import numpy as np

from py_core.adapters.head import MAX_NEIGHBOURS, NeighbourAdapter, check_head_adapter
from py_core.backend_errors import BackendError
from py_core.backends.checks import HEAD_SLOTS
from py_core.models.graph import Graph

_HEADER = 16


class HeadSlots:
    """`adapters` has the present adapters by number."""

    def __init__(self, graph: Graph) -> None:
        self._hidden_size, self._vocab_size = graph.head_input.width, graph.output.width
        self.adapters: dict[int, NeighbourAdapter] = {}

    def put(self, adapter: NeighbourAdapter) -> int:
        """Return the smallest free number. Raises AdapterError, BackendError as `HasAdapters.put_head_adapter`."""
        check_head_adapter(adapter, self._hidden_size, self._vocab_size)
        for number in range(1, HEAD_SLOTS + 1):
            if number not in self.adapters:
                self.adapters[number] = adapter
                return number
        raise BackendError(
            "adapter.too-many-heads",
            "{most} adapters at the head's input are loaded already, and no more fit. Remove one first.",
            most=HEAD_SLOTS,
        )

    def remove(self, number: int) -> None:
        """Raises ValueError if there is no adapter of this number."""
        if number == 0:
            raise ValueError("0 is not an adapter: there is nothing to remove.")
        self.check(number)
        del self.adapters[number]

    def check(self, number: int) -> None:
        """Raises ValueError if there is no adapter of this number; 0 stands for no adapter."""
        if number and number not in self.adapters:
            raise ValueError(f"There is no adapter {number} at the head's input. Put it there first.")


def slot_bytes(width: int) -> int:
    """Return the bytes of the largest adapter for a hidden size."""
    return _HEADER + 4 * MAX_NEIGHBOURS + 4 * MAX_NEIGHBOURS * width


def slot_data(adapter: NeighbourAdapter) -> bytes:
    """Return an adapter as kernels read it: count, odds, tau, temperature; tokens; then states of length 1."""
    header = struct.pack("<I3f", len(adapter.tokens), adapter.odds, adapter.tau, adapter.temperature)
    tokens = np.zeros(MAX_NEIGHBOURS, np.uint32)
    tokens[: len(adapter.tokens)] = adapter.tokens
    return header + tokens.tobytes() + np.ascontiguousarray(adapter.unit_states, np.float32).tobytes()
