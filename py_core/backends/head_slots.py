"""Which adapters at the head's input a backend holds: it gives them numbers, which the state's rows name."""

from __future__ import annotations

from py_core.adapters.head import AnyHeadAdapter, check_head_adapter
from py_core.backends.base import HEAD_SLOTS, BackendError
from py_core.models.graph import Graph


class HeadSlots:
    """`adapters` are those that are there, by number."""

    def __init__(self, graph: Graph) -> None:
        self._hidden_size, self._vocab_size = graph.head_input.width, graph.output.width
        self.adapters: dict[int, AnyHeadAdapter] = {}

    def put(self, adapter: AnyHeadAdapter) -> int:
        """The smallest free number. Raises AdapterError, BackendError as `Backend.put_head_adapter`."""
        check_head_adapter(adapter, self._hidden_size, self._vocab_size)
        for number in range(1, HEAD_SLOTS + 1):
            if number not in self.adapters:
                self.adapters[number] = adapter
                return number
        raise BackendError(
            f"{HEAD_SLOTS} adapters at the head's input are there already, the most that fit. Remove one first."
        )

    def remove(self, number: int) -> None:
        """Raises ValueError where there is none of this number."""
        if number == 0:
            raise ValueError("0 is no adapter: there is nothing to remove.")
        self.check(number)
        del self.adapters[number]

    def check(self, number: int) -> None:
        """Raises ValueError where there is none of this number; 0 is none."""
        if number and number not in self.adapters:
            raise ValueError(f"There is no adapter {number} at the head's input. Put it there first.")
