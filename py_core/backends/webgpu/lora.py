"""The place of sets of LoRA matrices on the GPU, and how the kernels of linears find them.

A set has a buffer for the linears of each operation (q, k and v; gate and up), with room for the products A x of a
pass: wgsl_shaders/snippets/lora/lora_matrices.wgsl. One kernel reads an operation's buffer and writes to another's.
Sets of one rank class share kernels. Each set has recorded lists of its own, over its own buffers. So another set
costs nothing, and kernels need not look up the place of their set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import MAX_RANK, LoraAdapter
from py_core.backends.webgpu.host import LORA_SET, Binding, Host
from py_core.models.graph import Linear

RANK_CLASSES = (8, MAX_RANK)
"""Sets of ranks up to each of these share kernels. Zeros fill them up."""

_NO_ROW = 2**32 - 1
_EACH = 4
"""Columns of A of an invocation that makes a part of A x: loads in flight at once, beside those of W."""


def rank_class(rank: int) -> int:
    return min(one for one in RANK_CLASSES if one >= rank)


@dataclass(frozen=True)
class LoraPart:
    """The additional parts of a linear's kernel that adds a set's products.

    `how` is its snippet, `binding` the number of the sets' binding, `parts` of how many parts A x is the sum.
    """

    how: str
    sets: OperationSets
    binding: int
    first_row: int
    parts: int = 1
    gated: bool = False
    """True if its rows are those of a gate and of its factor, as many of each."""

    @property
    def snippets(self) -> dict[str, str]:
        return {"lora": self.how, "lora_binding": f"lora_binding_{self.binding}"}

    @property
    def constants(self) -> dict[str, int]:
        ways = {"LORA_PARTS": self.parts, "LORA_GATED": self.gated}
        return {**self.sets.constants, "LORA_FIRST": self.first_row, **ways}


@dataclass(frozen=True)
class LoraNext:
    """The additional parts of a kernel that makes x and whose workgroups leave parts of A x, for `sets`."""

    sets: OperationSets
    constants: Mapping[str, int]

    def snippets(self, binding: int) -> dict[str, str]:
        return {"lora_next": "lora_next_part", "lora_next_binding": f"lora_next_binding_{binding}"}


NextOf = Callable[[int, int, int], LoraNext | None]
"""Called with the values that a workgroup makes of a row, the number of workgroups, and the invocations of each."""


class LoraSets:
    """The sets of one rank class.

    `operations` has the linears of each operation, and the place of the weights of the norm that their kernels apply to
    x, if any.
    """

    def __init__(
        self, host: Host, operations: Iterable[tuple[Sequence[Linear], Binding | None]], max_rows: int, rank: int
    ) -> None:
        self._host = host
        self._operations = [OperationSets(linears, norm, max_rows, rank) for linears, norm in operations]
        self._of = {linear: operation for operation in self._operations for linear in operation.linears}

    def of(self, linear: Linear) -> OperationSets:
        return self._of[linear]

    async def add(self, number: int, adapter: LoraAdapter) -> None:
        """Bring a set to the GPU. Raises BackendError if there is no room."""
        await asyncio.gather(*(operation.read_norm(self._host) for operation in self._operations))
        for operation in self._operations:
            operation.write(self._host, number, adapter)

    def remove(self, number: int) -> None:
        for operation in self._operations:
            operation.remove(self._host, number)

    def choose(self, number: int) -> None:
        """Bind this set in lists recorded from now on."""
        for operation in self._operations:
            operation.chosen = number


class OperationSets:
    """The sets of one operation's linears."""

    def __init__(self, linears: Sequence[Linear], norm: Binding | None, max_rows: int, rank: int) -> None:
        self.linears, self.rank, self.max_rows = linears, rank, max_rows
        self.chosen = 0
        self._norm, self._norm_weights = norm, np.zeros(0, np.float32)
        self._places: dict[int, Binding] = {}
        self._products = max_rows * self.inner
        a, b = self.inner * self.columns, sum(linear.out.width for linear in linears) * rank
        self.floats = self._products + a + b + (a if norm else 0)
        second, third = [*(self.first_row(linear) for linear in linears), _NO_ROW, _NO_ROW][1:3]
        self.constants = {
            "RANK": rank, "LINEARS": len(linears), "LORA_SECOND": second, "LORA_THIRD": third,
            "LORA_A": self._products, "LORA_B": self._products + a,
        }  # fmt: skip

    @property
    def columns(self) -> int:
        return self.linears[0].x.width

    @property
    def inner(self) -> int:
        """The rows of A of all linears."""
        return len(self.linears) * self.rank

    def a_at(self, folded: bool) -> int:
        """Return the place at which A begins, or A times the norm's weights."""
        return self.floats - self.inner * self.columns if folded else self._products

    def first_row(self, linear: Linear) -> int:
        """Return the number of a linear's first row among the rows of all."""
        before = self.linears[: self.linears.index(linear)]
        return sum(one.out.width for one in before)

    def next(self, tile: int, groups: int, workgroup: int) -> LoraNext | None:
        """Return how `groups` workgroups leave parts of A x, of `tile` values of x each; None if they cannot."""
        if groups > self.max_rows or groups * tile != self.columns or self.inner > workgroup:
            return None
        shares = 1
        while tile % (2 * shares) == 0 and tile // shares > _EACH and 2 * shares * self.inner <= workgroup:
            shares *= 2
        constants = {
            "RANK": self.rank, "NEXT_LINEARS": len(self.linears), "NEXT_K": self.columns, "NEXT_TILE": tile,
            "NEXT_SHARES": shares, "NEXT_A": self.a_at(self._norm is not None),
        }  # fmt: skip
        return LoraNext(self, constants)

    async def read_norm(self, host: Host) -> None:
        """Read the norm's weights, which are part of A."""
        if self._norm and not self._norm_weights.size:
            data = await host.read(self._norm.buffer, self._norm.offset, 4 * self.columns)
            self._norm_weights = np.frombuffer(data, np.float32)

    def write(self, host: Host, number: int, adapter: LoraAdapter) -> None:
        """Write the adapter to a new buffer; zeros if the adapter has no pair."""
        self._places[number] = Binding(host.create_buffer(4 * self.floats, LORA_SET), 0, 4 * self.floats)
        a = np.zeros((len(self.linears), self.columns, self.rank), np.float32)
        b = np.zeros((sum(linear.out.width for linear in self.linears), self.rank), np.float32)
        for i, linear in enumerate(self.linears):
            if pair := adapter.pairs.get(linear.weight):
                first, width = self.first_row(linear), linear.out.width
                rows = pair.b[linear.first_row : linear.first_row + width]
                a[i, :, : pair.rank] = pair.a.T
                b[first : first + width, : pair.rank] = np.float32(pair.scale) * rows
        folded = [a * self._norm_weights[:, None]] if self._norm else []
        data = b"".join(part.tobytes() for part in (a, b, *folded))
        host.write(self._places[number].buffer, 4 * self._products, data)

    def remove(self, host: Host, number: int) -> None:
        if place := self._places.pop(number, None):
            host.destroy_buffer(place.buffer)

    def binding(self) -> Binding:
        """The buffer of the last chosen set."""
        return self._places[self.chosen]
