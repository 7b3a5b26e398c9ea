"""The parts of a lowered model: kernels in order, and the dispatches they become for a pass of some size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding, Dispatch
from py_core.backends.webgpu.shaders import Phase

Grid = Callable[[int], tuple[int, int, int]]
"""Return the workgroups along x, y and z for a pass over a number of rows."""


_MOST_GROUPS = 65535
"""The most workgroups along one dimension of a grid."""


def fixed(bindings: tuple[Binding, ...]) -> Callable[[], tuple[Binding, ...]]:
    """Return a function of bindings that are the same in every recording."""
    return lambda: bindings


def per_row(work: int, workgroup: int) -> Grid:
    """Return a grid with `work` invocations for each row."""
    return lambda m: (-(-work // workgroup), m, 1)


def folded(n: int, rows_each: int, m_each: int) -> Grid:
    """Return a grid over n rows of W (along x, and y if x is full) and m of x (along z). A workgroup takes `rows_each`
    and `m_each` of them."""
    groups = -(-n // rows_each)
    fold = -(-groups // _MOST_GROUPS)
    return lambda m: (-(-groups // fold), fold, -(-m // m_each))


def _one(length_class: int) -> int:
    return 1


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a plan. `groups(m)` is the grid for a pass over m rows. Bindings are asked for when recording.

    Sequences of up to `most` tokens take `splits(most)` times as many workgroups along x; with 0 the kernel is left
    out. Kernels of one name are profiled together. With a `phase` it has no pipeline of its own.
    """

    name: str
    pipeline: int
    bindings: Callable[[], tuple[Binding, ...]]
    groups: Grid
    cost: Cost
    splits: Callable[[int], int] = _one
    phase: Phase | None = None


@dataclass(frozen=True)
class Launch:
    """A kernel for m rows (which may be rounded up) of sequences of up to `length_class` tokens."""

    kernel: Kernel
    m: int
    length_class: int

    def dispatch(self) -> Dispatch:
        x, y, z = self.kernel.groups(self.m)
        return Dispatch(self.kernel.pipeline, self.kernel.bindings(), (x * self.kernel.splits(self.length_class), y, z))


@dataclass
class Plan:
    """`body` runs M rows through the blocks, `head` turns the last of them into logits."""

    body: list[Kernel]
    head: list[Kernel]

    @property
    def step(self) -> list[Kernel]:
        return [*self.body, *self.head]
