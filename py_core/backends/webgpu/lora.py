"""Where sets of LoRA matrices lie on the GPU, and how the kernels of linears find them.

An operation's linears (q, k and v; gate and up) have one buffer: the products A x of a pass, and then the sets, each
with A and B of every run of linears that one kernel makes. The state names the set, so that another one costs nothing.
wgsl_shaders/snippets/lora_matrices.wgsl has the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import MAX_RANK, LoraAdapter
from py_core.backends.webgpu.host import Binding, Host
from py_core.models.graph import Linear

RANK_CLASSES = (8, MAX_RANK)
"""Sets of ranks up to each share kernels, filled up with zeros."""

_MOST_LINEARS = 3
_NO_ROW = 2**32 - 1


def rank_class(rank: int) -> int:
    return min(one for one in RANK_CLASSES if one >= rank)


@dataclass(frozen=True)
class LoraPlace:
    """A run's part of its operation's buffer: constants of lora_matrices.wgsl, and what to bind when recording."""

    constants: Mapping[str, int]
    binding: Callable[[], Binding]

    @property
    def rank(self) -> int:
        return self.constants["RANK"]

    @property
    def linears(self) -> int:
        return self.constants["LINEARS"]


@dataclass(frozen=True)
class LoraPart:
    """What a kernel is composed of besides where it adds a set's products: `how` is its snippet."""

    how: str
    place: LoraPlace
    binding: int
    first_row: int = 0
    """The run's row that the kernel's first row of W is."""

    @property
    def snippets(self) -> dict[str, str]:
        return {"lora": self.how, "lora_binding": f"lora_binding_{self.binding}"}

    @property
    def constants(self) -> dict[str, int]:
        return {**self.place.constants, "LORA_FIRST": self.first_row}


class LoraSets:
    """The sets of one rank class. `operations` has the runs of each operation's linears."""

    def __init__(self, host: Host, operations: Iterable[Sequence[Sequence[Linear]]], max_rows: int, rank: int) -> None:
        self._host, self._room, self._rank = host, 0, rank
        self._operations = [_Operation(runs, max_rows, rank) for runs in operations]
        self._places = {linear: place for op in self._operations for run, place in op.places for linear in run[:1]}

    def place(self, run: Sequence[Linear]) -> LoraPlace:
        return self._places[run[0]]

    def write(self, number: int, adapter: LoraAdapter, others: Mapping[int, LoraAdapter]) -> bool:
        """Bring a set to the GPU. Whether the buffers are new, to hold this many: then the others came along again."""
        if grows := number > self._room:
            self._room = 1 << (number - 1).bit_length()
            for operation in self._operations:
                operation.make_room(self._host, self._room)
        for one, its_set in ({**others, number: adapter} if grows else {number: adapter}).items():
            for operation in self._operations:
                operation.write(self._host, one, its_set)
        return grows


class _Operation:
    def __init__(self, runs: Sequence[Sequence[Linear]], max_rows: int, rank: int) -> None:
        self._runs, self._rank = runs, rank
        self._buffer: Binding | None = None
        self._products = sum(max_rows * len(run) * rank // 4 for run in runs)
        """vec4f of A x before the sets."""
        self._set = sum(_quads(run, rank) for run in runs)
        self.places: list[tuple[Sequence[Linear], LoraPlace]] = []
        product, at = 0, self._products
        for run in runs:
            second, third = (*_first_rows(run), _NO_ROW, _NO_ROW)[1:_MOST_LINEARS]
            constants = {
                "RANK": rank, "LINEARS": len(run), "LORA_SECOND": second, "LORA_THIRD": third, "LORA_X": product,
                "LORA_A": at, "LORA_B": at + len(run) * rank * run[0].x.width // 4, "LORA_SET": self._set,
            }  # fmt: skip
            self.places.append((run, LoraPlace(constants, self._binding)))
            product += max_rows * len(run) * rank // 4
            at += _quads(run, rank)

    def make_room(self, host: Host, sets: int) -> None:
        """A new buffer, for so many sets."""
        if self._buffer:
            host.destroy_buffer(self._buffer.buffer)
            self._buffer = None
        size = 16 * (self._products + sets * self._set)
        self._buffer = Binding(host.create_buffer(size, "adapters"), 0, size)

    def write(self, host: Host, number: int, adapter: LoraAdapter) -> None:
        data = np.concatenate([part for run in self._runs for part in _packed(run, adapter, self._rank)])
        host.write(self._binding().buffer, 16 * (self._products + (number - 1) * self._set), data.tobytes())

    def _binding(self) -> Binding:
        assert self._buffer
        return self._buffer


def _packed(run: Sequence[Linear], adapter: LoraAdapter, rank: int) -> list[np.ndarray]:
    """A of each linear and B of all rows as kernels read them, zeros where the adapter has none: float32 (count,)."""
    columns = run[0].x.width
    a = np.zeros((len(run), columns // 4, rank, 4), np.float32)
    b = np.zeros((sum(linear.out.width for linear in run), rank), np.float32)
    for i, (linear, first) in enumerate(zip(run, _first_rows(run), strict=True)):
        if pair := adapter.pairs.get(linear.weight):
            rows = slice(linear.first_row, linear.first_row + linear.out.width)
            a[i, :, : pair.rank] = pair.a.reshape(pair.rank, -1, 4).transpose(1, 0, 2)
            b[first : first + linear.out.width, : pair.rank] = np.float32(pair.scale) * pair.b[rows]
    return [a.ravel(), b.ravel()]


def _first_rows(run: Sequence[Linear]) -> list[int]:
    return [sum(linear.out.width for linear in run[:i]) for i in range(len(run))]


def _quads(run: Sequence[Linear], rank: int) -> int:
    """vec4f of a run's matrices."""
    return rank * (len(run) * run[0].x.width + sum(linear.out.width for linear in run)) // 4
