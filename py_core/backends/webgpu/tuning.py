"""Kernel shapes by class of adapter.

A software adapter runs invocations one after the other on a few cores: one invocation a row and no barriers is
12 to 50 times faster there than a workgroup a row (docs/decisions.md). A GPU wants neighbouring invocations to read
neighbouring words.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_core.backends.webgpu.host import AdapterInfo


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
    fuse_norm: bool
    """Whether linears normalize their input themselves: a dispatch less, some work twice."""
    tiled_matmul: bool
    """Whether passes over many rows use tiles in workgroup memory."""
    max_rows: int
    """Rows in one pass of a prefill."""
    attention_lanes: int
    attention_workgroup: int


def choose_shapes(adapter: AdapterInfo, head_dim: int) -> KernelShapes:
    if adapter.software:
        return KernelShapes(1, 32, "reduce_single", 8, 1, False, False, 16, 1, 4)
    lanes = min(adapter.subgroup_size, 32) if adapter.subgroup_size >= 8 else 32
    reduce = "reduce_subgroup" if adapter.subgroup_size >= 8 else "reduce_workgroup"
    attention_lanes = 64
    while attention_lanes // 2 * (head_dim + 4) * 4 > adapter.max_workgroup_storage:
        attention_lanes //= 2
    return KernelShapes(lanes, 128, reduce, 4, 1, True, True, 256, attention_lanes, attention_lanes)
