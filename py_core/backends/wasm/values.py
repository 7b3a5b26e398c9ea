"""Which values of a pass are stored, in which buffers, and until when.

A norm of whole rows is not stored if only linears read it: they normalize its input as they quantize it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_core.backends.fusion import Fused, FusedHead, GatedLinear, QKVAttention, ResidualLinear, inputs_of
from py_core.models.graph import Linear, RMSNorm, Value


def values_read(op: Fused) -> list[Value]:
    match op:
        case QKVAttention() | GatedLinear():
            return [op.x]
        case ResidualLinear():
            return [op.residual, op.linear.x]
        case FusedHead():
            return [op.linear.x]
    return inputs_of(op)


def _normalizes(op: Fused, value: Value) -> bool:
    """True if an operation reads this value through linears only."""
    match op:
        case ResidualLinear():
            return value != op.residual
        case QKVAttention() | GatedLinear() | FusedHead() | Linear():
            return True
    return False


class Values:
    """The place of each value while operations are lowered in their order, from `begin` on.

    A buffer is used again once the last operation that reads its value has run. The same operations get the same
    buffers each time.
    """

    def __init__(self, operations: Sequence[Fused], take: Callable[[int], int]) -> None:
        """`take` returns the address of the given number of bytes."""
        self._take = take
        self._buffers: list[tuple[int, int]] = []
        self._free: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self._place: dict[Value, int] = {}
        self._kept: set[Value] = set()
        self._stored: set[Value] = set()
        self._deferred = _deferred_norms(operations)
        self._last_reader: dict[Value, Value] = {}
        for op in operations:
            if op.out not in self._deferred:
                for value in values_read(op):
                    self._last_reader[self.source(value)[0]] = op.out

    def begin(self) -> None:
        """Forget all values: all buffers are free."""
        self._place.clear()
        self._stored.clear()
        self._free.clear()
        for address, nbytes in reversed(self._buffers):
            self._free.setdefault(nbytes, []).append(address)

    def __getitem__(self, value: Value) -> int:
        """Return the address of a stored value."""
        return self._place[value]

    def is_deferred(self, value: Value) -> bool:
        """True if a value is a norm that its readers make."""
        return value in self._deferred

    def source(self, value: Value) -> tuple[Value, RMSNorm | None]:
        """Return what a linear reads: the value, or the input of the norm that it has to make first."""
        norm = None if value in self._stored else self._deferred.get(value)
        return (norm.x, norm) if norm else (value, None)

    def make(self, value: Value, nbytes: int) -> int:
        """Return a buffer for a value."""
        self._place[value] = self.scratch(nbytes)
        return self._place[value]

    def put(self, value: Value, address: int) -> None:
        """Note that the value lies in memory that is not used again."""
        self._place[value] = address
        self._kept.add(value)

    def store(self, value: Value, address: int) -> None:
        """Note that the value lies at `address` until the next `begin`. Its readers need not make it."""
        self._place[value] = address
        self._stored.add(value)

    def is_stored(self, value: Value) -> bool:
        """True if `store` noted the place of the value."""
        return value in self._stored

    def overwrite(self, value: Value, by: Value) -> int:
        """Give the buffer of a value that nothing reads any more to another value. Returns its address."""
        self._place[by] = self._place.pop(value)
        return self._place[by]

    def scratch(self, nbytes: int) -> int:
        """Return a buffer until it is given back."""
        free = self._free.setdefault(nbytes, [])
        if not free:
            address = self._take(nbytes)
            self._buffers.append((address, nbytes))
            self._sizes[address] = nbytes
            free.append(address)
        return free.pop()

    def give_back(self, address: int) -> None:
        self._free[self._sizes[address]].append(address)

    def end(self, op: Fused) -> None:
        """Note that an operation has been lowered: buffers that nothing reads after it are given back."""
        if op.out in self._deferred:
            return
        for value in dict.fromkeys([op.out, *(self.source(read)[0] for read in values_read(op))]):
            if self._last_reader.get(value, op.out) == op.out and value in self._place and not self._stays(value):
                self.give_back(self._place.pop(value))

    def _stays(self, value: Value) -> bool:
        """True if a value's place is not one of these buffers."""
        return value in self._kept or value in self._stored


def _deferred_norms(operations: Sequence[Fused]) -> dict[Value, RMSNorm]:
    """Return norms by their values, if only linears read these, before the norm's input is overwritten."""
    found: dict[Value, RMSNorm] = {}
    for at, norm in enumerate(operations):
        if not isinstance(norm, RMSNorm) or norm.num_heads > 1:
            continue
        after = operations[at + 1 :]
        readers = [i for i, op in enumerate(after) if norm.out in values_read(op)]
        overwritten = [i for i, op in enumerate(after) if isinstance(op, ResidualLinear) and op.residual == norm.x]
        linears_only = all(_normalizes(after[i], norm.out) for i in readers)
        if readers and linears_only and all(i >= readers[-1] for i in overwritten):
            found[norm.out] = norm
    return found
