"""Which sets of LoRA matrices a backend holds: it gives them numbers, which the state names."""

from __future__ import annotations

from py_core.adapters.lora import LoraAdapter, check_adapter
from py_core.backends.base import MAX_ADAPTERS, BackendError
from py_core.models.graph import Graph


class AdapterNumbers:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._free = list(range(MAX_ADAPTERS, 0, -1))
        self._taken = {0}

    def add(self, adapter: LoraAdapter) -> int:
        """The smallest free number. Raises AdapterError, BackendError as `Backend.add_adapter`."""
        check_adapter(adapter, self._graph)
        if not self._free:
            raise BackendError(
                "adapter.too-many",
                "{most} adapters are loaded already, the most that fit. Remove one first.",
                most=MAX_ADAPTERS,
            )
        number = self._free.pop()
        self._taken.add(number)
        return number

    def remove(self, number: int) -> None:
        """Raises ValueError where there is no such set."""
        self.check(number)
        if number == 0:
            raise ValueError("0 is no adapter: there is nothing to remove.")
        self._taken.remove(number)
        self._free = sorted([*self._free, number], reverse=True)

    def check(self, number: int) -> None:
        """Raises ValueError where there is no such set; 0 is none."""
        if number not in self._taken:
            raise ValueError(f"There is no adapter {number} here. Add it first.")
