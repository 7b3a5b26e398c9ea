"""What a lowered model is made of: kernels in order, and the dispatches they become for a pass of some size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py_core.backends.webgpu.host import Binding, Dispatch

Grid = Callable[[int], tuple[int, int, int]]
"""Workgroups along x, y and z for a pass over so many rows."""


def _one(reach: int) -> int:
    return 1


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a plan. `groups(m)` is the grid for a pass over m rows; bindings are asked for when recording.

    `splits(reach)` times as many workgroups along x work on sequences of up to `reach` tokens; with 0 the kernel is
    left out.
    """

    name: str
    pipeline: int
    bindings: Callable[[], tuple[Binding, ...]]
    groups: Grid
    splits: Callable[[int], int] = _one


@dataclass
class Plan:
    """`body` runs M rows through the blocks, `head` turns the last row into logits."""

    body: list[Kernel]
    head: list[Kernel]

    def dispatches(self, kernels: list[Kernel], m: int, reach: int) -> list[Dispatch]:
        found = []
        for kernel in kernels:
            x, y, z = kernel.groups(m)
            if splits := kernel.splits(reach):
                found.append(Dispatch(kernel.pipeline, kernel.bindings(), (x * splits, y, z)))
        return found
