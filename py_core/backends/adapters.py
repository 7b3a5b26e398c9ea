"""The adapters that a backend holds, and the adapter of each sequence: the same on every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter, check_adapter
from py_core.backend_errors import BackendError
from py_core.backends.checks import MAX_ADAPTERS
from py_core.backends.head_slots import HeadSlots
from py_core.models.graph import Graph
from py_core.token_sequence import TokenSequence


class Adapters:
    """See `HasAdapters` for what use and removal mean. `rewind(sequence, stored)` lets a sequence run the tokens after
    its first `stored` tokens again."""

    def __init__(
        self, graph: Graph, sequences: Mapping[int, TokenSequence], rewind: Callable[[TokenSequence, int], None]
    ) -> None:
        self.sets: dict[int, LoraAdapter] = {}
        """The sets of LoRA matrices, by their numbers, which the state names."""
        self._graph, self._sequences, self._rewind = graph, sequences, rewind
        self._head_slots = HeadSlots(graph)

    @property
    def heads(self) -> Mapping[int, NeighbourAdapter]:
        """The adapters at the head's input, by their numbers."""
        return self._head_slots.adapters

    def add(self, adapter: LoraAdapter) -> int:
        """Give a set the smallest free number. Raises AdapterError, BackendError as `HasAdapters.add_adapter`."""
        check_adapter(adapter, self._graph)
        for number in range(1, MAX_ADAPTERS + 1):
            if number not in self.sets:
                self.sets[number] = adapter
                return number
        raise BackendError(
            "adapter.too-many",
            "{most} adapters are loaded already, and no more fit. Remove one first.",
            most=MAX_ADAPTERS,
        )

    def remove(self, number: int) -> None:
        """Raises ValueError if there is no such set."""
        self._check(number)
        if number == 0:
            raise ValueError("0 is not an adapter: there is nothing to remove.")
        del self.sets[number]
        for sequence in self._sequences.values():
            if sequence.adapter == number:
                self.use(sequence, 0)

    def use(self, sequence: TokenSequence, number: int) -> None:
        """Raises ValueError if there is no such set."""
        self._check(number)
        if sequence.adapter != number:
            sequence.adapter = number
            self._rewind(sequence, 0)

    def put_head(self, adapter: NeighbourAdapter) -> int:
        """Raises AdapterError, BackendError as `HasAdapters.put_head_adapter`."""
        return self._head_slots.put(adapter)

    def remove_head(self, number: int) -> None:
        """Raises ValueError if there is no adapter of this number."""
        self._head_slots.remove(number)
        for sequence in self._sequences.values():
            if sequence.head_adapter == number:
                self.use_head(sequence, 0)

    def use_head(self, sequence: TokenSequence, number: int) -> None:
        """Raises ValueError if there is no adapter of this number."""
        self._head_slots.check(number)
        if sequence.head_adapter != number:
            sequence.head_adapter = number
            self._rewind(sequence, max(sequence.length - 1, 0))

    def clear(self) -> None:
        """Forget all adapters."""
        self.sets.clear()
        self._head_slots.adapters.clear()

    def _check(self, number: int) -> None:
        if number and number not in self.sets:
            raise ValueError(f"There is no adapter {number} here. Add it first.")
