"""Where the values of a graph lie on the GPU: a buffer serves another value once nothing reads its last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from py_core.backends.base import MAX_LOGIT_ROWS
from py_core.backends.fusion import Fused, GatedLinear, Head, QKVAttention, ResidualLinear
from py_core.backends.webgpu.host import Binding, Host
from py_core.models.graph import Linear, RMSNorm, Value

Slot = tuple[int, int]
"""A buffer by the width of its rows, and its number among those of that width."""


@dataclass
class PassContext:
    """How rows go through the model: "one", "few" or "many" at a time, these `tiled` where the adapter likes that."""

    rows: str
    tiled: bool
    single_row: bool
    """Whether the state never has more than one row."""
    norms: dict[Value, RMSNorm] = field(default_factory=dict)
    """Norms whose values are never stored: a kernel that reads such a value normalizes the norm's input itself."""
    residual: Value | None = None
    """In the head: the value that still has a row for each row of the state; only rows that need logits are read."""


class Values:
    """The buffers of the values that `body` and `head` make, the same for passes of any number of rows.

    A value of the body has max_rows rows, one of the head as many as can need logits. The last value, the logits, lies
    where the caller says.
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
        self.made_by_readers = _made_by_readers(operations)
        """Norms that whatever reads them can make itself from the norm's input, which is still there by then."""

    def of(self, value: Value) -> Binding:
        """(rows, value.width) float32"""
        output, logits = self._output
        if value == output:
            return logits
        # A head of a large vocabulary would not fit with as many rows as the body has.
        rows = min(MAX_LOGIT_ROWS, self._max_rows) if value in self._in_head else self._max_rows
        return self._buffer(("value", rows, *self._slots[value]), rows * value.width)

    def scratch(self, role: str, width: int) -> Binding:
        """(max_rows, width) for what an operation keeps between its own kernels, or for a tap."""
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
        case Head():
            return [op.linear.x]
    return [value for value in vars(op).values() if isinstance(value, Value) and value != op.out]


def _slots(operations: Sequence[Fused]) -> dict[Value, Slot]:
    last = {op.out: at for at, op in enumerate(operations)}
    for at, op in enumerate(operations):
        last |= dict.fromkeys(_inputs(op), at)
    for op in reversed(operations):
        # What reads the norm may make it itself, from the norm's input.
        if isinstance(op, RMSNorm):
            last[op.x] = max(last[op.x], last[op.out])
    ends: dict[int, list[Value]] = {}
    for value, at in last.items():
        ends.setdefault(at, []).append(value)
    slots: dict[Value, Slot] = {}
    holder: dict[Slot, Value] = {}
    free: dict[int, list[int]] = {}
    count: dict[int, int] = {}
    for at, op in enumerate(operations):
        if isinstance(op, ResidualLinear):
            slot = slots[op.residual]
        else:
            width = op.out.width
            if not free.setdefault(width, []):
                free[width].append(count.get(width, 0))
                count[width] = count.get(width, 0) + 1
            free[width].sort()
            slot = (width, free[width].pop(0))
        slots[op.out], holder[slot] = slot, op.out
        for value in ends.get(at, []):
            if holder[slots[value]] == value:
                free[value.width].append(slots[value][1])
    return slots


def _made_by_readers(operations: Sequence[Fused]) -> set[Value]:
    found = set()
    for at, op in enumerate(operations):
        if not isinstance(op, RMSNorm) or op.num_heads > 1:
            continue
        readers = [other for other in operations[at:] if op.out in _inputs(other)]
        updates = [other for other in operations[at:] if isinstance(other, ResidualLinear) and other.residual == op.x]
        multiplied = all(
            isinstance(reader, QKVAttention | GatedLinear | Head | Linear)
            or (isinstance(reader, ResidualLinear) and reader.residual != op.out)
            for reader in readers
        )
        early = not updates or all(operations.index(reader) < operations.index(updates[0]) for reader in readers)
        if readers and multiplied and early:
            found.add(op.out)
    return found
