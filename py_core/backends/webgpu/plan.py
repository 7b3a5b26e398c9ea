"""What a lowered model is made of: kernels in order, and the dispatches they become for a pass of some size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Dispatch

Grid = Callable[[int], tuple[int, int, int]]
"""Workgroups along x, y and z for a pass over so many rows."""


def _one(reach: int) -> int:
    return 1


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a plan. `groups(m)` is the grid for a pass over m rows; bindings are asked for when recording.

    `splits(reach)` times as many workgroups along x work on sequences of up to `reach` tokens; with 0 the kernel is
    left out. Kernels of one name are profiled together.
    """

    name: str
    pipeline: int
    bindings: Callable[[], tuple[Binding, ...]]
    groups: Grid
    cost: Cost
    splits: Callable[[int], int] = _one


@dataclass(frozen=True)
class Launch:
    """A kernel for m rows (which may be rounded up) of sequences of up to `reach` tokens."""

    kernel: Kernel
    m: int
    reach: int

    def dispatch(self) -> Dispatch:
        x, y, z = self.kernel.groups(self.m)
        return Dispatch(self.kernel.pipeline, self.kernel.bindings(), (x * self.kernel.splits(self.reach), y, z))


@dataclass
class Plan:
    """`body` runs M rows through the blocks, `head` turns the last row into logits."""

    body: list[Kernel]
    head: list[Kernel]

    @property
    def step(self) -> list[Kernel]:
        return [*self.body, *self.head]
