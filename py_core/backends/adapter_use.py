"""The adapters that a backend holds, and which sequence runs with which: the same on every backend."""

from __future__ import annotations

from abc import ABC, abstractmethod

from py_core.adapters.lora import LoraAdapter
from py_core.backends.adapter_numbers import AdapterNumbers
from py_core.backends.base import TokenSequence
from py_core.backends.head_slots import HeadSlots
from py_core.models.graph import Graph


class AdapterUse(ABC):
    """See `Backend` for the contract of each public method."""

    def __init__(self, graph: Graph) -> None:
        self._sequences: dict[int, TokenSequence] = {}
        self._numbers = AdapterNumbers(graph)
        self._adapters: dict[int, LoraAdapter] = {}
        """The sets of LoRA matrices that are there, by their numbers."""
        self._head_slots = HeadSlots(graph)

    @abstractmethod
    def _rewind(self, sequence: TokenSequence, stored: int) -> None:
        """Run again what comes after the first `stored` tokens; all, where what they see was given back meanwhile."""

    def remove_adapter(self, number: int) -> None:
        self._numbers.remove(number)
        del self._adapters[number]
        for sequence in self._sequences.values():
            if sequence.adapter == number:
                self.use_adapter(sequence, 0)

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        self._numbers.check(number)
        if sequence.adapter != number:
            sequence.adapter = number
            self._rewind(sequence, 0)

    def remove_head_adapter(self, number: int) -> None:
        self._head_slots.remove(number)
        for sequence in self._sequences.values():
            if sequence.head_adapter == number:
                self.use_head_adapter(sequence, 0)

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        self._head_slots.check(number)
        if sequence.head_adapter != number:
            sequence.head_adapter = number
            self._rewind(sequence, max(sequence.length - 1, 0))
