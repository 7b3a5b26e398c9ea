"""Kernel shapes by class of adapter.

A software adapter runs invocations one after the other on a few cores. There, one invocation a row without barriers is
12 to 50 times faster than a workgroup a row (docs/decisions/0006). A GPU wants neighbouring invocations to read
neighbouring words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from py_core.backends.webgpu.host import AdapterInfo, Binding, Dispatch, Host
from py_core.backends.webgpu.shaders import binding_access, compose

FEW_ROWS = 8
"""The most rows of a pass (a draft, several conversations) that is not yet a prefill of many."""

SOME_ROWS = 64
"""Rows of a pass of one sequence that a GPU's matvecs still take, if they multiply in integers."""

INTEGER_TILE = 8
"""The most rows of x that one matvec invocation multiplies in integers."""

GPU_ROWS = 256
"""Rows in one pass of a prefill, on a GPU."""


class RowColumns(IntEnum):
    """The factors of a matvec of several rows of x: floats, integers that each workgroup makes, or integers that a
    kernel before it made."""

    FLOATS = 0
    MADE = 1
    READ = 2


@dataclass(frozen=True)
class MatvecShape:
    """How a matvec's invocations share the rows of W.

    A lane group is `subgroups` times `lanes` invocations (`lanes`: a power of two, at most a subgroup). It has tiles of
    `rows` rows of W, `row_tiles` of them one after the other. A workgroup is as many lane groups as fit in `workgroup`.
    """

    lanes: int
    workgroup: int
    rows: int
    row_tiles: int = 1
    subgroups: int = 1
    columns: RowColumns = RowColumns.FLOATS
    """How several rows of x are multiplied; a single row is multiplied in integers wherever possible."""
    x_rows: int = INTEGER_TILE
    """How many of several rows of x an invocation multiplies in integers (a power of two, up to INTEGER_TILE)."""

    @property
    def lane_group(self) -> int:
        """The number of invocations in a lane group."""
        return self.lanes * self.subgroups

    def as_list(self) -> list[int]:
        return [
            self.lanes, self.workgroup, self.rows, self.row_tiles, self.subgroups, int(self.columns), self.x_rows,
        ]  # fmt: skip

    @staticmethod
    def of_list(numbers: Sequence[int]) -> MatvecShape:
        """Raises TypeError and ValueError if it is no list of `as_list`."""
        lanes, workgroup, rows, row_tiles, subgroups, columns, x_rows = numbers
        return MatvecShape(lanes, workgroup, rows, row_tiles, subgroups, RowColumns(columns), x_rows)


@dataclass(frozen=True)
class PersistentShape:
    """The workgroups of a persistent kernel (lowering/persistent.py), which must all run side by side, and the
    invocations of each."""

    groups: int
    workgroup: int

    def matvec(self, lanes: int, items: int) -> MatvecShape:
        """Return the shape of a matvec over `items` row tiles: each workgroup stages x once."""
        return MatvecShape(lanes, self.workgroup, 1, -(-items * lanes // (self.workgroup * self.groups)))


@dataclass(frozen=True)
class MatmulShape:
    """How a matmul of many rows of x is cut into tiles: SLICES and WIDE of matmul.wgsl or matmul_integer.wgsl."""

    integers: bool
    slices: int
    wide: int

    @property
    def rows(self) -> int:
        """Rows of W of a tile."""
        return (8 if self.integers else 32) * self.wide

    @property
    def x_rows(self) -> int:
        """Rows of x of a tile."""
        return 64 if self.integers else 32

    @property
    def workgroup(self) -> int:
        return self.slices * (64 if self.integers else 32)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory: codes and limbs take 48 and 80 bytes for 32 values, floats 128."""
        weights, x = (48, 80) if self.integers else (128, 128)
        return self.slices * (weights * self.rows + x * self.x_rows)

    def as_list(self) -> list[int]:
        return [int(self.integers), self.slices, self.wide]

    @staticmethod
    def of_list(numbers: Sequence[int]) -> MatmulShape:
        """Raises TypeError and ValueError if it is no list of `as_list`."""
        integers, slices, wide = numbers
        return MatmulShape(bool(integers), slices, wide)


@dataclass(frozen=True)
class KernelShapes:
    lanes: int
    """The most invocations that share a row of a matvec or a norm; a power of two."""
    workgroup: int
    """Invocations of a matvec's workgroup."""
    reduce: str
    """The snippet that adds up over the lanes."""
    batch_tile: int
    """Rows of x that one matvec invocation handles when there are several, in floats."""
    rows_together: int
    """Rows of W that a matvec's invocations multiply by the same x."""
    stage_columns: bool
    """True if a matvec brings x through workgroup memory, and normalizes it there: a dispatch less, some work twice."""
    tiled_matmul: bool
    """True if passes over many rows use tiles in workgroup memory."""
    max_rows: int
    """Rows in one pass of a prefill."""
    flash_attention: bool
    """True if attention shares work in workgroup memory."""
    integer_dot: bool
    """True if matvecs multiply quantized weights in integers, and matmuls of many rows may.

    Needs `stage_columns`.
    """
    some_rows: int = FEW_ROWS
    """The most rows of a pass of one sequence that matvecs take, if all weights are quantized; at least FEW_ROWS."""
    halves: str = "halves"
    """The snippet that reads halves: this one is exact everywhere."""

    @property
    def matvec(self) -> MatvecShape:
        """Return the shape of a matvec that was not measured."""
        return MatvecShape(self.lanes, self.workgroup, self.rows_together)


def choose_shapes(adapter: AdapterInfo, head_dim: int) -> KernelShapes:
    if adapter.software:
        # One invocation's loops over larger heads and long sequences would exceed what lavapipe runs.
        return KernelShapes(1, 32, "reduce_single", 8, 1, False, False, 16, head_dim > 128, False)
    lanes = min(adapter.subgroup_size, 32) if adapter.subgroup_size >= 8 else 32
    reduce = "reduce_subgroup" if adapter.subgroup_size >= 8 else "reduce_workgroup"
    some = SOME_ROWS if adapter.integer_dot else FEW_ROWS
    return KernelShapes(lanes, 128, reduce, 4, 1, True, True, GPU_ROWS, True, adapter.integer_dot, some)


async def choose_halves(host: Host) -> str:
    """Return the snippet that reads halves on this adapter: WGSL's own function may turn subnormal halves into
    zeros."""
    shader = compose("unpack_halves", {}, {})
    pipeline = host.pipeline(shader, binding_access(shader), "unpack_halves")
    given = np.array([1, 0x200, 0x3FF, 0x8001, 0x83FF, 0x3C00, 0x7BFF, 0x8400], np.uint16)
    words, floats = host.create_buffer(given.nbytes, "halves"), host.create_buffer(2 * given.nbytes, "floats")
    host.write(words, 0, given.tobytes())
    bindings = (Binding(words, 0, given.nbytes), Binding(floats, 0, 2 * given.nbytes))
    recorded = host.record([Dispatch(pipeline, bindings, (1, 1, 1))])
    await host.check()
    host.submit([recorded])
    found = np.frombuffer(await host.read(floats, 0, 2 * given.nbytes), np.float32)
    host.forget(recorded)
    host.destroy_buffer(words)
    host.destroy_buffer(floats)
    return "halves_unpacked" if np.array_equal(found, given.view(np.float16).astype(np.float32)) else "halves"
