"""Measures which shape of a matvec and of a matmul is the fastest for each matrix, and remembers it.

The fastest shapes depend on the GPU, and no developer has every GPU. At the first load the decode step's kernels are
timed in a dozen shapes, over the weights of all layers as decoding reads them. The kernels of a prefill's pass are
timed in the shapes that its matmuls may have, floats or integers. The results are kept by the adapter's name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.sampling_state import state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import AdapterInfo, Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kernel_shapes import FEW_ROWS, KernelShapes, MatmulShape, MatvecShape, RowColumns
from py_core.backends.webgpu.lowering.linear import limbs_name
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.settings import Measure
from py_core.backends.webgpu.weights.layout import blocks_of

_VERSION = "8"
"""Changes with the kernels: measurements of other versions are of no use."""
_PASSES = (128, 256)
"""Rows of the passes whose times are summed to choose a matmul: a short prompt's, and a part of a long one's."""
_FEW_PASSES = (FEW_ROWS,)
_MANY = ", many rows"
_FEW = ", few rows"

Shape = TypeVar("Shape", MatvecShape, MatmulShape)
Kept = dict[str, list[int]]


class TuningStore(Protocol):
    """Keeps one text from load to load."""

    async def read(self) -> str:
        """Return the text, or "" if there is none."""
        ...

    async def write(self, text: str) -> None: ...


def candidates(shapes: KernelShapes, adapter: AdapterInfo, columns: int) -> list[MatvecShape]:
    """Return shapes that may be fast for a matrix of `columns` columns, the usual one first. Lanes beyond a subgroup
    cannot add up.

    Lane groups of several subgroups hold a block of x in each invocation, and use it for many rows.
    """
    usual, full, blocks = shapes.matvec, shapes.lanes, blocks_of(columns)
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
    host: Host, builder: KernelBuilder, state: Binding, store: TuningStore, lower: Callable[[str], list[Kernel]],
    measure: Measure = measure_lists,
) -> None:  # fmt: skip
    """Set `builder.chosen`, `chosen_few` and `chosen_tiles` for the kernels of "one", "few" and "many" rows. `lower`
    makes these kernels with the builder as it is, and `measure` times them.

    The pages must be empty. If the GPU has no clock, the usual shapes stay.
    """
    kept = _parsed(await store.read())
    known = kept.setdefault(f"{host.adapter.name}, version {_VERSION}", {})
    matvecs = {name: candidates(builder.shapes, host.adapter, columns) for name, columns in builder.shaped.items()}
    lower("few")  # fills the lists of what may be measured
    fews = {f"{name}{_FEW}": shapes for name, shapes in builder.of_few.items() if len(shapes) > 1}
    matmuls = {f"{name}{_MANY}": shapes for name, shapes in builder.tiled.items() if len(shapes) > 1}
    passes = tuple(rows for rows in _PASSES if rows <= builder.shapes.max_rows)
    found: Kept = {}
    try:
        if missing := _missing(known, matvecs):
            found |= await _measure(host, builder, state, missing, lambda: lower("one"), (1,), measure)
        if of_few := _missing(known, fews):
            found |= await _measure(host, builder, state, of_few, lambda: lower("few"), _FEW_PASSES, measure)
        if unknown := _missing(known, matmuls):
            found |= await _measure(host, builder, state, unknown, lambda: lower("many"), passes, measure)
    except DeviceLostError:
        raise
    except BackendError:
        return
    if found:
        known |= found
        await store.write(json.dumps(kept))
    builder.chosen = {name: _matvec(known[name]) for name in matvecs}
    builder.chosen_few = {name.removesuffix(_FEW): _matvec(known[name]) for name in fews}
    builder.chosen_tiles = {name.removesuffix(_MANY): _tiles(known[name]) for name in matmuls}
    builder.usual_tiles = [shape for shape, _ in Counter(builder.chosen_tiles.values()).most_common()]


def _missing(known: Kept, tried: Mapping[str, list[Shape]]) -> dict[str, list[Shape]]:
    """Return the kernels for which no possible shape is known. Another program may have written to the store, even for
    another adapter of the same name."""
    return {
        name: shapes for name, shapes in tried.items() if known.get(name) not in [shape.as_list() for shape in shapes]
    }


def _matvec(kept: Sequence[int]) -> MatvecShape:
    lanes, workgroup, rows, row_tiles, subgroups, columns, x_rows = kept
    return MatvecShape(lanes, workgroup, rows, row_tiles, subgroups, RowColumns(columns), x_rows)


def _tiles(kept: Sequence[int]) -> MatmulShape:
    integers, slices, wide = kept
    return MatmulShape(bool(integers), slices, wide)


async def _measure(
    host: Host, builder: KernelBuilder, state: Binding, tried: Mapping[str, list[Shape]],
    lower: Callable[[], list[Kernel]], passes: Sequence[int], measure: Measure,
) -> Kept:  # fmt: skip
    """Return for each kernel name the shape that takes the least time, over passes of the given rows together."""
    recorded: dict[tuple[str, Shape, int], int] = {}
    timed: dict[tuple[str, Shape], float] = {}
    try:
        for round_ in range(max(map(len, tried.values()))):
            now = {name: shapes[round_] for name, shapes in tried.items() if round_ < len(shapes)}
            builder.chosen = {name: shape for name, shape in now.items() if isinstance(shape, MatvecShape)}
            builder.chosen_few = {name.removesuffix(_FEW): shape for name, shape in builder.chosen.items()}
            builder.chosen_tiles = {
                name.removesuffix(_MANY): shape for name, shape in now.items() if isinstance(shape, MatmulShape)
            }
            kernels = lower()
            for name, shape in now.items():
                linear = name.removesuffix(_MANY).removesuffix(_FEW)
                wanted = [kernel for kernel in kernels if kernel.name in (linear, limbs_name(linear))]
                for rows in passes:
                    dispatches = [Launch(kernel, rows, SHORT).dispatch() for kernel in wanted]
                    recorded[name, shape, rows] = host.record(dispatches)
        await host.check()
        for rows in passes:
            lists = {key[:2]: one for key, one in recorded.items() if key[2] == rows}
            prepare = partial(host.write, state.buffer, 0, state_bytes([(0, row, 0) for row in range(rows)]))
            seconds = await measure(host, list(lists.values()), prepare)
            for key, of_list in zip(lists, seconds, strict=True):
                timed[key] = timed.get(key, 0.0) + of_list
    finally:
        builder.chosen, builder.chosen_few, builder.chosen_tiles = {}, {}, {}
        for one in recorded.values():
            host.forget(one)
    return {name: min(shapes, key=lambda shape: timed[name, shape]).as_list() for name, shapes in tried.items()}


def _parsed(text: str) -> dict[str, dict[str, list[int]]]:
    """Return what was kept, or nothing if it is damaged."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(kept, dict) or not all(isinstance(of_adapter, dict) for of_adapter in kept.values()):
        return {}
    return kept
