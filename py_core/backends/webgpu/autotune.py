"""Finds out by measuring which shape of a matvec is the fastest for each matrix of a model, and remembers it.

What is fast depends on the GPU, and nobody has all of them: so at the first load the kernels of a decode step are
timed in a dozen shapes, over the weights of all layers as decoding reads them. What was found is kept by the adapter's
name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from py_core.backends.base import BackendError, DeviceLostError
from py_core.backends.sampling_state import state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import AdapterInfo, Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.layout import BLOCK
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.tuning import KernelShapes, MatvecShape

_VERSION = "5"
"""Changes with the kernels: what was measured of others is of no use."""


class TuningStore(Protocol):
    """Where one text is kept from load to load."""

    async def read(self) -> str:
        """The text, or "" if there is none."""
        ...

    async def write(self, text: str) -> None: ...


def candidates(shapes: KernelShapes, adapter: AdapterInfo, columns: int) -> list[MatvecShape]:
    """What may be fast for a matrix of so many columns, the usual shape first. Lanes beyond a subgroup cannot add up.

    Lane groups of several subgroups have a block of x in each invocation: they keep it for many rows.
    """
    usual, full, blocks = shapes.matvec, shapes.lanes, columns // BLOCK
    found = [MatvecShape(full, workgroup, rows) for workgroup in (128, 256) for rows in (1, 2, 4)]
    found += [MatvecShape(max(1, full // 2), workgroup, 1) for workgroup in (128, 256)]
    found += [MatvecShape(max(1, full // 4), workgroup, rows) for workgroup, rows in ((128, 1), (128, 4), (64, 2))]
    subgroups = -(-blocks // full)
    if subgroups > 1:
        lanes = full * subgroups
        found += [MatvecShape(full, lanes * max(1, size // lanes), 2, 8, subgroups) for size in (256, 768)]
        if subgroups <= 4:
            found += [MatvecShape(full, lanes * max(1, size // lanes), 4, 1, subgroups) for size in (128, 256)]
        else:
            lanes = full * -(-subgroups // 4)
            found += [MatvecShape(full, lanes * max(1, 768 // lanes), 2, 1, -(-subgroups // 4))]
    possible = dict.fromkeys(shape for shape in found if shape.workgroup <= adapter.max_workgroup_size)
    return [usual, *(shape for shape in possible if shape != usual)]


async def tune(
    host: Host, builder: KernelBuilder, state: Binding, store: TuningStore, lower: Callable[[], list[Kernel]]
) -> None:
    """Set `builder.chosen` for the kernels of a decode step, which `lower` makes with the builder as it is.

    Nothing may be in the pages yet. Where the GPU has no clock, the usual shapes stay.
    """
    kept = _parsed(await store.read())
    known = kept.setdefault(f"{host.adapter.name}, version {_VERSION}", {})
    tried = {name: candidates(builder.shapes, host.adapter, columns) for name, columns in builder.shaped.items()}
    # Somebody else may have written there, for another adapter of the same name even.
    if missing := {
        name: shapes for name, shapes in tried.items() if known.get(name) not in [shape.as_list() for shape in shapes]
    }:
        try:
            known |= await _measure(host, builder, state, missing, lower)
        except DeviceLostError:
            raise
        except BackendError:
            return
        await store.write(json.dumps(kept))
    builder.chosen = {name: MatvecShape(*known[name]) for name in tried}


async def _measure(
    host: Host, builder: KernelBuilder, state: Binding, tried: dict[str, list[MatvecShape]],
    lower: Callable[[], list[Kernel]],
) -> dict[str, list[int]]:  # fmt: skip
    """The fastest shape of each kernel name."""
    recorded: dict[tuple[str, MatvecShape], int] = {}
    try:
        for round_ in range(max(map(len, tried.values()))):
            now = {name: shapes[round_] for name, shapes in tried.items() if round_ < len(shapes)}
            builder.chosen = now
            kernels = lower()
            for name, shape in now.items():
                dispatches = [Launch(kernel, 1, SHORT).dispatch() for kernel in kernels if kernel.name == name]
                recorded[name, shape] = host.record(dispatches)
        await host.check()
        one_row = state_bytes([(0, 0, 0)])
        seconds = await measure_lists(host, list(recorded.values()), lambda: host.write(state.buffer, 0, one_row))
    finally:
        builder.chosen = {}
        for one in recorded.values():
            host.forget(one)
    timed = dict(zip(recorded, seconds, strict=True))
    return {name: min(shapes, key=lambda shape: timed[name, shape]).as_list() for name, shapes in tried.items()}


def _parsed(text: str) -> dict[str, dict[str, list[int]]]:
    """What was kept, or nothing where it is damaged."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(kept, dict) or not all(isinstance(of_adapter, dict) for of_adapter in kept.values()):
        return {}
    return kept
