"""Kernel shapes by class of adapter.

A software adapter runs invocations one after the other on a few cores: one invocation a row and no barriers is
12 to 50 times faster there than a workgroup a row (docs/decisions.md). A GPU wants neighbouring invocations to read
neighbouring words.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_core.backends.webgpu.host import AdapterInfo

FEW_ROWS = 8
"""Rows of a pass (a draft, several conversations) that is not yet a prefill of many."""


@dataclass(frozen=True)
class MatvecShape:
    """`lanes` invocations (a power of two) share `rows` rows of W; `workgroup` of them are a workgroup."""

    lanes: int
    workgroup: int
    rows: int

    def as_list(self) -> list[int]:
        return [self.lanes, self.workgroup, self.rows]


@dataclass(frozen=True)
class KernelShapes:
    lanes: int
    """The most invocations that share a row of a matvec or a norm; a power of two."""
    workgroup: int
    """Invocations of a matvec's workgroup."""
    reduce: str
    """The snippet that adds up over the lanes."""
    batch_tile: int
    """Rows of x that one matvec invocation handles when there are several."""
    rows_together: int
    """Rows of W that a matvec's invocations multiply by the same x."""
    stage_columns: bool
    """Whether a matvec brings x through workgroup memory, and normalizes it there: a dispatch less, some work twice."""
    tiled_matmul: bool
    """Whether passes over many rows use tiles in workgroup memory."""
    max_rows: int
    """Rows in one pass of a prefill."""
    flash_attention: bool
    """Whether attention shares work in workgroup memory."""
    integer_dot: bool
    """Whether a matvec of one row of x multiplies quantized weights in integers. Needs `stage_columns`."""

    @property
    def matvec(self) -> MatvecShape:
        """That of a matvec which was not measured."""
        return MatvecShape(self.lanes, self.workgroup, self.rows_together)


def choose_shapes(adapter: AdapterInfo, head_dim: int) -> KernelShapes:
    if adapter.software:
        # One invocation's loops over larger heads and long sequences would exceed what lavapipe runs of them.
        return KernelShapes(1, 32, "reduce_single", 8, 1, False, False, 16, head_dim > 128, False)
    lanes = min(adapter.subgroup_size, 32) if adapter.subgroup_size >= 8 else 32
    reduce = "reduce_subgroup" if adapter.subgroup_size >= 8 else "reduce_workgroup"
    return KernelShapes(lanes, 128, reduce, 4, 1, True, True, 256, True, adapter.integer_dot)
