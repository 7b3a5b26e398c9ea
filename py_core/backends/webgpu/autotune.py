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
from py_core.backends.webgpu.attention import NEAR
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.lowering import KernelBuilder
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.tuning import KernelShapes, MatvecShape

_VERSION = "4"
"""Changes with the kernels: what was measured of others is of no use."""


class TuningStore(Protocol):
    """Where one text is kept from load to load."""

    async def read(self) -> str:
        """The text, or "" if there is none."""
        ...

    async def write(self, text: str) -> None: ...


def candidates(shapes: KernelShapes) -> list[MatvecShape]:
    """The usual shape first. Lanes beyond a subgroup cannot add up."""
    usual, full = shapes.matvec, shapes.lanes
    half, quarter = max(1, full // 2), max(1, full // 4)
    found = [MatvecShape(full, workgroup, rows) for workgroup in (128, 256) for rows in (1, 2)]
    found += [MatvecShape(half, workgroup, 1) for workgroup in (128, 256)]
    found += [MatvecShape(half, 128, 4), MatvecShape(quarter, 128, 2)]
    return [usual, *(shape for shape in found if shape != usual)]


async def tune(
    host: Host, builder: KernelBuilder, state: Binding, store: TuningStore, lower: Callable[[], list[Kernel]]
) -> None:
    """Set `builder.chosen` for the kernels of a decode step, which `lower` makes with the builder as it is.

    Nothing may be in the pages yet. Where the GPU has no clock, the usual shapes stay.
    """
    kept, possible = _parsed(await store.read()), [shape.as_list() for shape in candidates(builder.shapes)]
    known = kept.setdefault(f"{host.adapter.name}, version {_VERSION}", {})
    names = builder.shaped
    # Somebody else may have written there, for another adapter of the same name even.
    if missing := {name for name in names if known.get(name) not in possible}:
        try:
            known |= await _measure(host, builder, state, missing, lower)
        except DeviceLostError:
            raise
        except BackendError:
            return
        await store.write(json.dumps(kept))
    builder.chosen = {name: MatvecShape(*known[name]) for name in names}


async def _measure(
    host: Host, builder: KernelBuilder, state: Binding, names: set[str], lower: Callable[[], list[Kernel]]
) -> dict[str, list[int]]:
    """The fastest shape of each kernel name."""
    recorded: dict[tuple[str, MatvecShape], int] = {}
    try:
        for shape in candidates(builder.shapes):
            builder.chosen = dict.fromkeys(names, shape)
            kernels = lower()
            for name in names:
                dispatches = [Launch(kernel, 1, NEAR).dispatch() for kernel in kernels if kernel.name == name]
                recorded[name, shape] = host.record(dispatches)
        await host.check()
        one_row = state_bytes([(0, 0, 0)])
        seconds = await measure_lists(host, list(recorded.values()), lambda: host.write(state.buffer, 0, one_row))
    finally:
        builder.chosen = {}
        for one in recorded.values():
            host.forget(one)
    timed = dict(zip(recorded, seconds, strict=True))
    return {
        name: min((shape for other, shape in timed if other == name), key=lambda shape: timed[name, shape]).as_list()
        for name in names
    }


def _parsed(text: str) -> dict[str, dict[str, list[int]]]:
    """What was kept, or nothing where it is damaged."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(kept, dict) or not all(isinstance(of_adapter, dict) for of_adapter in kept.values()):
        return {}
    return kept
