"""The loss at the head. Logits are made in chunks of the vocabulary, so those of all tokens never exist at once.

Each chunk's logits are made twice: first for each row's sums, then for their gradient and the states' gradient. Only
rows with a loss are read: they are gathered before, and the gradient is brought back to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from py_core.backends.webgpu.cost import Cost
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.plan import Kernel, fixed, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.training.linears import LinearFactor, TrainingLinears
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightMatrix
from py_core.training.gradient_ops import HeadLoss
from py_core.training.session import Loss, Pack

CHUNK = 4096
"""Tokens of the vocabulary whose logits exist at a time."""
_ROW_BYTES = 16
SUMS_BYTES = 32
"""The bytes of the sums of a row with a loss."""
_STATE_BYTES = 16
_STATE_STRIDE = 256
"""Bytes from one chunk's state to the next: the alignment of a binding."""


@dataclass(frozen=True)
class _Chunk:
    """Tokens first .. first + size: rows from `first_row` on of a part of the output matrix. `state` names them."""

    part: MatrixPart
    first_row: int
    first: int
    size: int
    state: Binding


class LossLowering:
    """The loss of one plan. `make(nbytes, label)` makes a buffer, `pack` is the pack's buffer."""

    def __init__(
        self, op: HeadLoss, matrix: WeightMatrix, linears: TrainingLinears, builder: KernelBuilder,
        make: Callable[[int, str], Binding], pack: Binding,
    ) -> None:  # fmt: skip
        self._op, self._matrix, self._linears, self._builder = op, matrix, linears, builder
        self._pack, self._width = pack, op.h.width
        rows = builder.shapes.max_rows
        ranges = [
            (part, first, part.first_row + first, min(CHUNK, part.rows - first))
            for part in matrix.parts
            for first in range(0, part.rows, CHUNK)
        ]
        self._states = make(_STATE_STRIDE * len(ranges), "chunks of the vocabulary")
        self._chunks = [
            _Chunk(*numbers, Binding(self._states.buffer, _STATE_STRIDE * i, _STATE_BYTES))
            for i, numbers in enumerate(ranges)
        ]
        self._stride = min(CHUNK, -(-max(chunk.size for chunk in self._chunks) // 4) * 4)
        """Logits from the start of one row to the next."""
        self._rows = make(_ROW_BYTES * rows, "rows with a loss")
        self.sums = make(SUMS_BYTES * rows, "sums of logits")
        self.states = make(4 * self._width * rows, "states of rows with a loss")
        self._base_states = make(4 * self._width * rows, "the base's states")
        self._gradient = make(4 * self._width * rows, "gradient of the states")
        self._logits = make(4 * self._stride * rows, "logits of a chunk")
        self._base_logits = make(4 * self._stride * rows, "the base's logits of a chunk")

    def writes(self, pack: Pack) -> Iterator[tuple[Binding, bytes]]:
        """Yield the data of a pack that the kernels read, and its place."""
        count = len(pack.loss_rows)
        rows = np.zeros((count, _ROW_BYTES // 4), np.uint32)
        rows[:, 0], rows[:, 1] = pack.loss_rows, pack.targets
        rows.view(np.float32)[:, 2], rows.view(np.float32)[:, 3] = pack.weights, pack.kl_weights
        states = np.zeros((len(self._chunks), _STATE_STRIDE // 4), np.uint32)
        states[:, :4] = [(count, chunk.first_row, chunk.first, chunk.size) for chunk in self._chunks]
        yield self._states, states.tobytes()
        if count:
            yield self._rows, rows.tobytes()
            if pack.base_states is not None:
                yield self._base_states, np.ascontiguousarray(pack.base_states, np.float32).tobytes()

    def gather(self, h: Binding) -> list[Kernel]:
        """Gather the states of the rows with a loss."""
        pipeline = self._builder.pipeline("gather_rows", {}, K=self._width, WORKGROUP=64)
        bindings = fixed((self._chunks[0].state, self._rows, h, self.states))
        return [Kernel("gather_rows", pipeline, bindings, self._by_quads, Cost(row_bytes=8 * self._width))]

    def kernels(self, dh: Binding, divergence: bool) -> list[Kernel]:
        """Return sums and gradients of the gathered states; with `divergence` also those from the base's states."""
        found = []
        self._linears.begin()
        for chunk in self._chunks:
            found += [*self._made_logits(chunk, divergence), self._sums(chunk, divergence)]
        for chunk in reversed(self._chunks):
            last = chunk is self._chunks[-1]
            # The logits of the last chunk are still there.
            found += [] if last else self._made_logits(chunk, divergence)
            found.append(self._slopes(chunk, divergence))
            found += self._linears.logits_gradient(
                self._matrix, chunk.part, self._stride, chunk.state, self._logits, self._gradient, add=not last
            )
        pipeline = self._builder.pipeline("scatter_rows", {}, K=self._width, WORKGROUP=64)
        bindings = fixed((self._pack, self._gradient, dh))
        found.append(Kernel("scatter_rows", pipeline, bindings, self._by_quads, Cost(row_bytes=8 * self._width)))
        return found

    def _made_logits(self, chunk: _Chunk, divergence: bool) -> list[Kernel]:
        pairs = [(LinearFactor(self.states, "states"), self._logits)]
        if divergence:
            pairs.append((LinearFactor(self._base_states, "base", "base"), self._base_logits))
        return [
            kernel
            for states, logits in pairs
            for kernel in self._linears.logits(self._matrix, chunk.part, self._stride, chunk.state, states, logits)
        ]

    def _sums(self, chunk: _Chunk, divergence: bool) -> Kernel:
        vectors, constants = self._constants(divergence)
        pipeline = self._builder.pipeline("loss_sums", {}, WORKGROUP=256, **constants)
        bindings = (chunk.state, self._rows, self._logits, self._base_logits, vectors, self.sums)
        return Kernel("loss_sums", pipeline, fixed(bindings), lambda m: (m, 1, 1), Cost(row_bytes=8 * self._stride))

    def _slopes(self, chunk: _Chunk, divergence: bool) -> Kernel:
        vectors, constants = self._constants(divergence)
        pipeline = self._builder.pipeline("loss_gradient", {}, WORKGROUP=64, **constants)
        bindings = (chunk.state, self._rows, self.sums, self._base_logits, vectors, self._logits)
        cost = Cost(row_bytes=12 * self._stride)
        return Kernel("loss_gradient", pipeline, fixed(bindings), per_row(self._stride, 64), cost)

    def _constants(self, divergence: bool) -> tuple[Binding, dict[str, Constant]]:
        """Return the place of the biases, or any buffer; and the constants of loss_rows.wgsl."""
        bias = self._linears.bias(self._op.weight, 0)
        constants: dict[str, Constant] = {
            "CHUNK": self._stride, "CAP": float(self._op.cap), "KL": divergence, "ADD_BIAS": bias is not None,
            "BIAS_AT": bias[1] if bias else 0,
        }  # fmt: skip
        return bias[0] if bias else self._rows, constants

    def _by_quads(self, m: int) -> tuple[int, int, int]:
        return -(-self._width // 256), m, 1


def loss_of(pack: Pack, sums: bytes) -> Loss:
    """Return the loss that follows from the sums of a pack's rows (loss_rows.wgsl)."""
    found = np.frombuffer(sums, np.float32).reshape(-1, SUMS_BYTES // 4)[: len(pack.loss_rows)].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_sum = found[:, 0] + np.log(found[:, 1])
        cross_entropy = float(np.sum(pack.weights * (log_sum - found[:, 4])))
        if pack.base_states is None:
            return Loss(cross_entropy, 0.0)
        base_log_sum = found[:, 2] + np.log(found[:, 3])
        apart = found[:, 5] / found[:, 3] - base_log_sum + log_sum
        return Loss(cross_entropy, float(np.sum(pack.kl_weights * apart)))
