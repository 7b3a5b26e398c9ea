"""Kernels that multiply by the base's weights in training: forward, for gradients, and by parts of the vocabulary."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.plan import Grid, Kernel, fixed, folded, per_row
from py_core.backends.webgpu.shaders import Constant
from py_core.backends.webgpu.training.values import TrainingValues
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightArena, WeightMatrix
from py_core.backends.webgpu.weights.layout import BLOCK, LIMBS_BYTES
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models.graph import Graph, Linear
from py_core.training.gradient_ops import LinearGradient

CHUNK_SNIPPETS = {"state": "chunk_state", "weight_tile": "chunk_weight_tile", "gradient_row": "chunk_gradient_row"}
"""Snippets of kernels whose first row of W is in the state."""


@dataclass(frozen=True)
class _Product:
    """A product of `rows` rows of a part of a matrix. With `chunk` the state names the rows, at most `rows` of them."""

    matrix: WeightMatrix
    part: MatrixPart
    rows: int
    first_row: int
    chunk: bool = False

    def constants(self) -> dict[str, Constant]:
        found: dict[str, Constant] = {"K": self.matrix.columns, "N": self.rows, "BLOCKS": self.part.blocks}
        return found if self.chunk else found | {"FIRST_ROW": self.first_row}

    @property
    def snippets(self) -> Mapping[str, str]:
        return CHUNK_SNIPPETS if self.chunk else {}

    def name(self, kind: str) -> str:
        return f"{kind} {self.matrix.columns}x{self.rows} {self.matrix.format.name}"


@dataclass(frozen=True)
class LinearFactor:
    """A factor that is multiplied by a weight: its place, and a name that only these numbers have. `role` tells factors
    apart that are used in turns."""

    place: Binding
    name: Hashable
    role: str = ""


class TrainingLinears:
    def __init__(
        self, arena: WeightArena, vectors: Vectors, graph: Graph, builder: KernelBuilder, values: TrainingValues
    ) -> None:
        self._arena, self._vectors, self._builder, self._values = arena, vectors, builder, values
        self._linears = {(op.weight, op.first_row): op for op in graph.ops if isinstance(op, Linear)}
        self._limbs: dict[str, Hashable] = {}

    def begin(self) -> None:
        """Begin kernels that run after something other than the kernels made last."""
        self._limbs.clear()

    def forward(self, op: Linear, state: Binding, x: LinearFactor, out: Binding) -> list[Kernel]:
        """out = x W^T + bias"""
        bias = self.bias(op.weight, op.first_row)
        found = []
        for product in self._products(op.weight, op.first_row, op.out.width):
            offset = product.part.first_row
            constants: dict[str, Constant] = {
                "ADD_BIAS": bias is not None, "BIAS_AT": bias[1] + offset if bias else 0, "Y_STRIDE": op.out.width,
                "Y_OFFSET": offset,
            }  # fmt: skip
            found += self._matmul(product, state, x, out, bias[0] if bias else state, constants)
        return found

    def gradient(self, op: LinearGradient, state: Binding, dy: Binding, out: Binding, add: bool) -> list[Kernel]:
        """out = dy W, or with `add` added to what it holds."""
        products = self._products(op.weight, op.first_row, op.dy.width)
        if len(products) > 1:
            raise BackendError(
                "gpu.training-before",
                "{name} is larger than this GPU can bind, so no layer before it can be trained.",
                name=op.weight,
            )
        return [self._transposed(products[0], state, dy, out, add)]

    def logits(
        self, matrix: WeightMatrix, part: MatrixPart, chunk: int, state: Binding, x: LinearFactor, out: Binding
    ) -> list[Kernel]:
        """Return out (rows, chunk) = x W^T, for the rows of W that the chunk's state names."""
        constants: dict[str, Constant] = {"ADD_BIAS": False, "BIAS_AT": 0, "Y_STRIDE": chunk, "Y_OFFSET": 0}
        return self._matmul(_Product(matrix, part, chunk, 0, True), state, x, out, state, constants)

    def logits_gradient(
        self, matrix: WeightMatrix, part: MatrixPart, chunk: int, state: Binding, dy: Binding, out: Binding, add: bool
    ) -> list[Kernel]:
        """Return out = dy (rows, chunk) W, or added to `out`, for the rows of W that the chunk's state names."""
        return [self._transposed(_Product(matrix, part, chunk, 0, True), state, dy, out, add)]

    def bias(self, weight: str, first_row: int) -> tuple[Binding, int] | None:
        """Return the place of a linear's biases, and the number of the first bias there."""
        return self._vectors.bias(self._linears[weight, first_row])

    def _products(self, weight: str, first_row: int, rows: int) -> list[_Product]:
        matrix, first = self._arena.find(weight)
        return [
            _Product(matrix, part, min(part.rows, rows), first + first_row if len(matrix.parts) == 1 else 0)
            for part in matrix.parts
        ]

    def _matmul(
        self, product: _Product, state: Binding, x: LinearFactor, out: Binding, vectors: Binding,
        constants: Mapping[str, Constant],
    ) -> list[Kernel]:  # fmt: skip
        part, name = product.part, product.name("linear")
        tiles = self._builder.tiles(name, product.matrix.format, product.rows)
        place, before = self._in_limbs(product, state, x) if tiles.integers else (x.place, [])
        pipeline = self._builder.pipeline(
            "matmul_integer" if tiles.integers else "matmul",
            {**self._builder.reader(product.matrix.format), **product.snippets}, **product.constants(), **constants,
            EPILOGUE=0, GELU=False, SLICES=tiles.slices, WIDE=tiles.wide,
        )  # fmt: skip
        bindings = (state, part.quants, part.scales, place, vectors, out)
        cost = linear_cost(product.matrix, product.rows, 0, product.rows)
        grid = folded(product.rows, tiles.rows, tiles.x_rows)
        return [*before, Kernel(name, pipeline, fixed(bindings), grid, cost)]

    def _in_limbs(self, product: _Product, state: Binding, x: LinearFactor) -> tuple[Binding, list[Kernel]]:
        """Return x in integers, and the kernel that makes them unless the last product of this width read this x."""
        columns = product.matrix.columns
        role = f"limbs {x.role}"
        limbs = self._values.scratch(role, columns // BLOCK * LIMBS_BYTES // 4)
        key = f"{role} {columns}"
        if self._limbs.get(key) == x.name:
            return limbs, []
        self._limbs[key] = x.name
        pipeline = self._builder.pipeline("limbs", dict(product.snippets), K=columns, WORKGROUP=64)
        cost = Cost(row_bytes=4 * columns + columns // BLOCK * LIMBS_BYTES)
        grid = per_row(columns // BLOCK, 64)
        return limbs, [Kernel(f"limbs {columns}", pipeline, fixed((state, x.place, limbs)), grid, cost)]

    def _transposed(self, product: _Product, state: Binding, dy: Binding, out: Binding, add: bool) -> Kernel:
        part, columns = product.part, product.matrix.columns
        tiles = self._builder.gradient_tiles(columns)
        pipeline = self._builder.pipeline(
            "matmul_gradient", {**self._builder.reader(product.matrix.format), **product.snippets},
            **product.constants(), ADD=add, SLICES=tiles.slices, WIDE=tiles.wide,
        )  # fmt: skip
        grid: Grid = lambda m: (-(-columns // tiles.rows), -(-m // tiles.x_rows), 1)  # noqa: E731
        cost = linear_cost(product.matrix, product.rows, columns if add else 0, product.rows)
        return Kernel(product.name("gradient"), pipeline, fixed((state, part.quants, part.scales, dy, out)), grid, cost)
