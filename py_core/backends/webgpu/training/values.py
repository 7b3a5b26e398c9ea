"""The place of a training pass's values on the GPU: a buffer serves another value once nothing reads its last one.

The operations of a whole pass are one list: forward through the blocks, the loss, and back. A block's values are made
twice, for its forward pass and again for its gradients. Values that join two blocks are kept between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py_core.backends.webgpu.host import Binding
from py_core.models.graph import Embedding, Value
from py_core.training.gradient_ops import ForwardOp, GradientOp, HeadLoss, LoraUp, values_made, values_read
from py_core.training.plan import TrainingPlan

PassOp = Embedding | ForwardOp | GradientOp | HeadLoss
Slot = tuple[int, int]
"""A buffer: the width of its rows, and its number among buffers of that width."""
Key = tuple[Value, bool]
"""A value, and True if it is a value of a block's forward pass that is made again."""


@dataclass(frozen=True)
class Step:
    """An operation of a pass. `again`: its result is made again before gradients read it."""

    op: PassOp
    again: bool = False


def forward_steps(plan: TrainingPlan) -> list[Step]:
    """Return the steps from the tokens to the input of the output matrix."""
    blocks = [Step(op, True) for block in plan.blocks for op in block.forward]
    return [Step(plan.embedding), *blocks, *map(Step, plan.head)]


def backward_steps(plan: TrainingPlan) -> list[Step]:
    """Return the steps from the loss back to the first trained block."""
    back = [op for block in reversed(plan.blocks) for op in (*block.recompute, *block.backward)]
    return [Step(plan.loss), *map(Step, [*plan.head_backward, *back])]


class TrainingValues:
    """The buffers of a plan's values, float32 (rows, width) each; `make(nbytes, label)` makes one."""

    def __init__(self, plan: TrainingPlan, rows: int, make: Callable[[int, str], Binding]) -> None:
        self._rows, self._make = rows, make
        self._kept = {plan.embedding.out, *(block.out for block in plan.blocks)}
        self._made: dict[object, Binding] = {}
        self.updated: set[Value] = set()
        """Results that take the place of the value to which they are added."""
        self._slots = self._assigned([*forward_steps(plan), *backward_steps(plan)])

    def of(self, value: Value, again: bool = False) -> Binding:
        """Return the buffer of a value, for a step that has this `again`."""
        slot = self._slots[self._key(value, again)]
        return self._buffer(slot, slot[0])

    def scratch(self, role: str, width: int) -> Binding:
        """Return the memory that an operation keeps between its own kernels."""
        return self._buffer((role, width), width)

    def _buffer(self, key: object, width: int) -> Binding:
        if key not in self._made:
            self._made[key] = self._make(4 * self._rows * width, f"training {key}")
        return self._made[key]

    def _key(self, value: Value, again: bool) -> Key:
        return value, again and value not in self._kept

    def _assigned(self, steps: Sequence[Step]) -> dict[Key, Slot]:
        last: dict[Key, int] = {}
        for at, step in enumerate(steps):
            for value in (*made_by(step.op), *read_by(step.op)):
                last[self._key(value, step.again)] = at
        ends: dict[int, list[Key]] = {}
        for key, at in last.items():
            ends.setdefault(at, []).append(key)
        slots: dict[Key, Slot] = {}
        free: dict[int, list[Slot]] = {}
        count: dict[int, int] = {}
        for at, step in enumerate(steps):
            before = _changed(step.op)
            for value in made_by(step.op):
                key = self._key(value, step.again)
                if key in slots:
                    continue
                if before and last[old := self._key(before, step.again)] == at and old in ends[at]:
                    ends[at].remove(old)
                    slots[key] = slots[old]
                    self.updated.add(value)
                elif free.get(value.width):
                    slots[key] = free[value.width].pop()
                else:
                    slots[key] = value.width, count.setdefault(value.width, 0)
                    count[value.width] += 1
            for key in ends.get(at, []):
                free.setdefault(key[0].width, []).append(slots[key])
        return slots


def read_by(op: PassOp) -> list[Value]:
    match op:
        case Embedding():
            return []
        case HeadLoss():
            return [op.h]
    return values_read(op)


def made_by(op: PassOp) -> list[Value]:
    match op:
        case Embedding():
            return [op.out]
        case HeadLoss():
            return [op.dh]
    return values_made(op)


def _changed(op: PassOp) -> Value | None:
    """Return the value to which the operation's result is added, if any."""
    return op.y if isinstance(op, LoraUp) else getattr(op, "plus", None)
