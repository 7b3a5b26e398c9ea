"""Measures which shape of a matvec and of a matmul is the fastest for each matrix, and remembers it.

The fastest shapes depend on the GPU, and no developer has every GPU. The decode step's kernels are timed in a dozen
shapes, over the weights of all layers as decoding reads them. The kernels of a prefill's pass are timed in the shapes
that its matmuls may have, floats or integers. That takes seconds, once for a model and a GPU. Until then the usual
shapes run. The results are kept by the adapter's name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.sampling_state import state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder, ShapeChoices
from py_core.backends.webgpu.kernel_shapes import FEW_ROWS, MatmulShape, MatvecShape
from py_core.backends.webgpu.lowering.linear import limbs_name
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.settings import Measure

_VERSION = "8"
"""Changes with the kernels: measurements of other versions are of no use."""
_MANY_PASSES = (128, 256)
"""Rows of the passes whose times are summed to choose a matmul: a short prompt's, and a part of a long one's."""
_MANY = ", many rows"
_FEW = ", few rows"

Shape = TypeVar("Shape", MatvecShape, MatmulShape)
Kept = dict[str, list[int]]
IsWanted = Callable[[], bool]
"""True once something else should have the device."""


class TuningStore(Protocol):
    """Keeps one text from load to load."""

    async def read(self) -> str:
        """Return the text, or "" if there is none."""
        ...

    async def write(self, text: str) -> None: ...


class Wanted(Exception):
    """A measurement ended early."""


class ShapeTuning:
    """The shapes of a builder's kernels. `lower` makes the kernels of "one", "few" and "many" rows with the builder as
    it is, and `measure` times them."""

    def __init__(
        self, host: Host, builder: KernelBuilder, store: TuningStore, lower: Callable[[str], list[Kernel]],
        measure: Measure,
    ) -> None:  # fmt: skip
        self._host, self.builder, self._store, self._measure = host, builder, store, measure
        self._has_news = False
        """True if shapes were measured."""
        passes = tuple(rows for rows in _MANY_PASSES if rows <= builder.shapes.max_rows)
        self._kinds: tuple[_Kind[MatvecShape] | _Kind[MatmulShape], ...] = (
            _Kind("", builder.one, MatvecShape.of_list, lambda: lower("one"), (1,)),
            _Kind(_FEW, builder.few, MatvecShape.of_list, lambda: lower("few"), (FEW_ROWS,)),
            _Kind(_MANY, builder.many, MatmulShape.of_list, lambda: lower("many"), passes),
        )

    async def recall(self) -> None:
        """Let the builder use the shapes that are kept."""
        _, known = await self._kept()
        for kind in self._kinds:
            kind.choose(known)
        tiles = Counter(self.builder.many.chosen.values())
        self.builder.usual_tiles = [shape for shape, _ in tiles.most_common()]

    async def tune(self, state: Binding, slot: int, is_wanted: IsWanted) -> bool:
        """Measure the kernels of which no shape is kept, and keep the fastest. Returns True if there were some, also in
        calls that ended early.

        `slot` has pages for the longest pass; the state is overwritten. If the GPU has no clock, the usual shapes stay.
        Raises Wanted and keeps what it has measured by then. Raises DeviceLostError.
        """
        self._kinds[1].lower()  # fills the lists of what may be measured: the head of several rows is made late
        for kind in self._kinds:
            try:
                measured = await kind.measured(self._host, self._measure, state, slot, is_wanted)
            except DeviceLostError:
                raise
            except BackendError:
                break
            if measured:
                kept, known = await self._kept()
                known |= measured
                await self._store.write(json.dumps(kept))
                kind.choose(known)
                self._has_news = True
        return self._has_news

    async def kept(self, name: str) -> list[int]:
        """Return the numbers that are kept under a name for this adapter, [] if there are none."""
        _, known = await self._kept()
        return known.get(name, [])

    async def keep(self, name: str, numbers: list[int]) -> None:
        kept, known = await self._kept()
        known[name] = numbers
        await self._store.write(json.dumps(kept))

    async def _kept(self) -> tuple[dict[str, Kept], Kept]:
        """Return all that is kept, and of that what belongs to this adapter."""
        kept = _parsed(await self._store.read())
        return kept, kept.setdefault(f"{self._host.adapter.name}, version {_VERSION}", {})


class _Kind(Generic[Shape]):
    """The kernels of one kind of pass: passes of these rows together are measured. `suffix` goes behind the kernels'
    names in the store; `read` makes a shape of what is stored."""

    def __init__(
        self, suffix: str, choices: ShapeChoices[Shape], read: Callable[[Sequence[int]], Shape],
        lower: Callable[[], list[Kernel]], passes: Sequence[int],
    ) -> None:  # fmt: skip
        self.choices: ShapeChoices[Shape] = choices
        self._read: Callable[[Sequence[int]], Shape] = read
        self._suffix, self.lower, self._passes = suffix, lower, passes

    def choose(self, known: Kept) -> None:
        """Choose the shapes that are known. Another program may have written to the store: what is damaged is left."""
        for name, numbers in known.items():
            kernel = name.removesuffix(_FEW).removesuffix(_MANY)
            if name == f"{kernel}{self._suffix}":
                with suppress(TypeError, ValueError):
                    self.choices.chosen[kernel] = self._read(numbers)

    async def measured(self, host: Host, measure: Measure, state: Binding, slot: int, is_wanted: IsWanted) -> Kept:
        """Return for each kernel without a chosen shape the one that takes the least time."""
        tried = {
            name: shapes
            for name, shapes in self.choices.possible.items()
            if len(shapes) > 1 and self.choices.chosen.get(name) not in shapes
        }
        if not tried:
            return {}
        recorded: dict[tuple[str, Shape, int], int] = {}
        timed: dict[tuple[str, Shape], float] = {}

        def prepare(rows: int) -> None:
            if is_wanted():
                raise Wanted
            host.write(state.buffer, 0, state_bytes([(0, row, slot) for row in range(rows)]))

        try:
            for round_ in range(max(map(len, tried.values()))):
                now = {name: shapes[round_] for name, shapes in tried.items() if round_ < len(shapes)}
                kernels = self._lowered(now)
                for name, shape in now.items():
                    wanted = [kernel for kernel in kernels if kernel.name in (name, limbs_name(name))]
                    for rows in self._passes:
                        recorded[name, shape, rows] = host.record(
                            [Launch(kernel, rows, SHORT).dispatch() for kernel in wanted]
                        )
                await host.check()
                if is_wanted():
                    raise Wanted
            for rows in self._passes:
                lists = {key[:2]: one for key, one in recorded.items() if key[2] == rows}
                seconds = await measure(host, list(lists.values()), partial(prepare, rows))
                for key, of_list in zip(lists, seconds, strict=True):
                    timed[key] = timed.get(key, 0.0) + of_list
        finally:
            for one in recorded.values():
                host.forget(one)
        return {
            f"{name}{self._suffix}": min(shapes, key=lambda shape: timed[name, shape]).as_list()
            for name, shapes in tried.items()
        }

    def _lowered(self, shapes: Mapping[str, Shape]) -> list[Kernel]:
        """Return the kernels in these shapes."""
        before = self.choices.chosen
        self.choices.chosen = {**before, **shapes}
        try:
            return self.lower()
        finally:
            self.choices.chosen = before


def _parsed(text: str) -> dict[str, Kept]:
    """Return what was kept, or nothing if it is damaged."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(kept, dict) or not all(isinstance(of_adapter, dict) for of_adapter in kept.values()):
        return {}
    return kept
