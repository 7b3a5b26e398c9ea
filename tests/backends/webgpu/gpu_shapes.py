"""Shapes of kernels that adapters choose, to try on the adapter of this machine."""

from __future__ import annotations

import dataclasses

from py_core.backends.webgpu.kernel_shapes import KernelShapes

# As on a GPU, with and without subgroups (those of lavapipe are 4 wide), in passes small enough to need several.
HARDWARE = KernelShapes(32, 64, "reduce_workgroup", 4, 1, True, True, 64, True, False)
SUBGROUPS = KernelShapes(4, 16, "reduce_subgroup", 4, 2, True, True, 64, True, True)
INTEGERS = dataclasses.replace(HARDWARE, integer_dot=True)
SOME = dataclasses.replace(SUBGROUPS, some_rows=32)
SHAPES = {"software": None, "hardware": HARDWARE, "integers": INTEGERS, "subgroups": SUBGROUPS, "some": SOME}
