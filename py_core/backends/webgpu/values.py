"""The place of a graph's values on the GPU: a buffer serves another value once nothing reads its last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.fusion import Fused, FusedHead, GatedLinear, QKVAttention, ResidualLinear, inputs_of
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.models.graph import Linear, RMSNorm, Value

Slot = tuple[int, int]
"""A buffer: the width of its rows, and its number among buffers of that width."""


@dataclass
class PassContext:
    """How rows go through the model: "one", "few", "some" or "many" at a time; "many" are `tiled` if adapters like
    it."""

    rows: str
    tiled: bool
    single_row: bool
    """True if the state never has more than one row."""
    norms: dict[Value, RMSNorm] = field(default_factory=dict)
    """Norms whose values are never stored: a kernel that reads such a value normalizes the norm's input itself."""
    limbs: dict[int, Value] = field(default_factory=dict)
    """The value last converted to integers, by its width."""
    rank: int = 0
    """The rank class of the set of LoRA matrices that the rows run with, 0 for none."""
    parts: dict[Linear, int] = field(default_factory=dict)
    """By the first linear of an operation: the number of parts whose sum is A x, once a kernel makes them."""
    readers: Mapping[Value, Linear] = field(default_factory=dict)
    """The first linear that reads a value of one row, or a norm of it that readers make, by that value."""
    persistent: PersistentShape | None = None
    """Matvecs become phases of persistent kernels of this shape; None: kernels of their own."""
    residual: Value | None = None
    """In the head: the value that still has a row for each row of the state. Only rows that need logits are read."""


class Values:
    """The buffers of the values that `body` and `head` make, the same for passes of any number of rows.

    A value of the body has max_rows rows; a value of the head has as many as can need logits. The last value, the
    logits, lies at a place that the caller names.
    """

    def __init__(
        self, host: Host, body: Sequence[Fused], head: Sequence[Fused], max_rows: int, logits: Binding
    ) -> None:
        operations = [*body, *head]
        self._host, self._max_rows = host, max_rows
        self._slots = _slots(operations)
        self._in_head = {op.out for op in head}
        self._output = (operations[-1].out, logits)
        self._made: dict[tuple[object, ...], Binding] = {}
        self._elsewhere: dict[Value, Binding] = {}
        self.made_by_readers = _made_by_readers(operations)
        """Norms that their readers can make from the norm's input, which is still there by then."""

    def elsewhere(self, places: Mapping[Value, Binding]) -> Values:
        """Return the same values, except some that lie in other buffers."""
        found = copy(self)
        found._elsewhere = dict(places)
        return found

    def of(self, value: Value) -> Binding:
        """Return the buffer of a value: (rows, value.width) float32."""
        if value in self._elsewhere:
            return self._elsewhere[value]
        output, logits = self._output
        if value == output:
            return logits
        # The head of a large vocabulary would not fit with the rows of the body.
        rows = min(MAX_LOGIT_ROWS, self._max_rows) if value in self._in_head else self._max_rows
        return self._buffer(("value", rows, *self._slots[value]), rows * value.width)

    def scratch(self, role: str, width: int) -> Binding:
        """Return (max_rows, width) for what an operation keeps between its own kernels, or for a tap."""
        return self._buffer((role, width), self._max_rows * width)

    def _buffer(self, key: tuple[object, ...], count: int) -> Binding:
        if key not in self._made:
            label = " ".join(map(str, key))
            self._made[key] = Binding(self._host.create_buffer(4 * count, label), 0, 4 * count)
        return self._made[key]


def _inputs(op: Fused) -> list[Value]:
    match op:
        case ResidualLinear():
            return [op.residual, op.linear.x]
        case FusedHead():
            return [op.linear.x]
    return inputs_of(op)


def _slots(operations: Sequence[Fused]) -> dict[Value, Slot]:
    """Return a buffer for each value. A buffer is used again once nothing reads its value."""
    last = {op.out: at for at, op in enumerate(operations)}
    for at, op in enumerate(operations):
        last |= dict.fromkeys(_inputs(op), at)
    for op in reversed(operations):
        # The reader of a norm may make it itself, from the norm's input.
        if isinstance(op, RMSNorm):
            last[op.x] = max(last[op.x], last[op.out])
    ends: dict[int, list[Value]] = {}
    for value, at in last.items():
        ends.setdefault(at, []).append(value)
    slots: dict[Value, Slot] = {}
    holder: dict[Slot, Value] = {}
    free: dict[int, list[Slot]] = {}
    for at, op in enumerate(operations):
        if isinstance(op, ResidualLinear):
            slot = slots[op.residual]
        elif free.get(op.out.width):
            slot = min(free[op.out.width])
            free[op.out.width].remove(slot)
        else:
            slot = (op.out.width, sum(width == op.out.width for width, _ in holder))
        slots[op.out], holder[slot] = slot, op.out
        for value in ends.get(at, []):
            # An updated residual has left its buffer to the sum.
            if holder[slots[value]] == value:
                free.setdefault(value.width, []).append(slots[value])
    return slots


def _made_by_readers(operations: Sequence[Fused]) -> set[Value]:
    """Return norms of whole rows that only linears read, all of them before the norm's input is updated in place."""
    readers: dict[Value, list[int]] = {}
    updated: dict[Value, int] = {}
    for at, op in enumerate(operations):
        for value in _inputs(op):
            readers.setdefault(value, []).append(at)
        if isinstance(op, ResidualLinear):
            updated[op.residual] = at
    found = set()
    for op in operations:
        if isinstance(op, RMSNorm) and op.weight and op.num_heads == 1 and op.out in readers:
            makes_it = all(_multiplies(operations[at], op.out) for at in readers[op.out])
            if makes_it and readers[op.out][-1] < updated.get(op.x, len(operations)):
                found.add(op.out)
    return found


def _multiplies(op: Fused, x: Value) -> bool:
    """True if an operation reads x by linears only."""
    if isinstance(op, ResidualLinear):
        return op.linear.x == x and op.residual != x
    return isinstance(op, QKVAttention | GatedLinear | FusedHead | Linear)
