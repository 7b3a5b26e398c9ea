"""The kernels of a graph's linears: matvecs of few rows, matmuls of many, and their additional work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from py_core.backends.webgpu.cost import Cost, linear_cost
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kernel_shapes import MatvecShape, RowColumns
from py_core.backends.webgpu.lora import LoraNext, LoraPart, LoraSets, NextOf, OperationSets
from py_core.backends.webgpu.plan import Grid, Kernel, fixed, folded, per_row
from py_core.backends.webgpu.values import PassContext, Values
from py_core.backends.webgpu.weights.arena import WeightArena, WeightMatrix
from py_core.backends.webgpu.weights.layout import BLOCK, LIMBS_BYTES
from py_core.backends.webgpu.weights.vectors import Vectors
from py_core.models.graph import Activation, ExpertLinear, Graph, Linear, RMSNorm, Value

_DOWN_TILE, _DOWN_WORKGROUP = 4, 512
"""Rows of x, and invocations, of a workgroup that makes A x."""


class Epilogue(IntEnum):
    """The last step of a linear's sums: EPILOGUE of matvec.wgsl and matmul.wgsl."""

    STORE = 0
    ADD = 1
    GATE = 2


@dataclass(frozen=True)
class LinearInput:
    """The inputs of a kernel besides the weights: x, the norm that it makes of x, if any, and the biases of its rows.

    `vectors` are the norm's weights, and from `bias_at` on the biases; any buffer if there are neither.
    """

    x: Binding
    norm: RMSNorm | None
    vectors: Binding
    bias_at: int | None

    def constants(self, first_row: int = 0) -> dict[str, int | bool]:
        """Return the constants of kernels that add biases to rows of W from `first_row` on."""
        return {
            "ADD_BIAS": self.bias_at is not None,
            "BIAS_AT": 0 if self.bias_at is None else self.bias_at + first_row,
        }


class LinearLowering:
    """The linears of one model; `state` is the state's buffer."""

    def __init__(
        self, builder: KernelBuilder, arena: WeightArena, graph: Graph, values: Values, vectors: Vectors, state: Binding
    ) -> None:
        self._builder, self._arena, self._weights = builder, arena, graph.weights
        self._values, self._vectors, self._state = values, vectors, state
        self.loras: dict[int, LoraSets] = {}
        """The sets of LoRA matrices by their rank class."""

    def runs(self, linears: Sequence[Linear]) -> list[list[Linear]]:
        """Return linears of one value in groups whose rows can lie one below the other in one matrix."""
        tensors: list[list[Linear]] = []
        for linear in linears:
            before = tensors[-1] if tensors else []
            if before and before[-1].weight == linear.weight and _rows(before) == linear.first_row:
                before.append(linear)
            else:
                tensors.append([linear])
        found: list[list[Linear]] = []
        names: list[str] = []
        for tensor in tensors:
            if not self._is_whole(tensor):
                found += [[linear] for linear in tensor]
                names = []
            elif names and self._arena.can_join([*names, tensor[0].weight]):
                found[-1] += tensor
                names.append(tensor[0].weight)
            else:
                found.append(tensor)
                names = [tensor[0].weight]
        return found

    def matrix(self, run: Sequence[Linear], whole: bool = False) -> WeightMatrix:
        """Return the matrix that holds a run's rows, from the run's `first_row` on. `whole` asks for one part."""
        names = list(dict.fromkeys(linear.weight for linear in run))
        return self._arena.place(names, whole or len(run) > 1 or not self._is_whole(run))

    def input(self, run: Sequence[Linear], context: PassContext) -> LinearInput:
        """Return the inputs of the kernel of a run."""
        x = run[0].x
        norm, bias = context.norms.get(x), self._vectors.bias(run[0])
        place = self._values.of(norm.x if norm else x)
        vectors = bias[0] if bias else self._vectors.norm(norm) if norm else place
        return LinearInput(place, norm, vectors, bias[1] if bias else None)

    def side_by_side(self, linears: Sequence[Linear], out: Binding, context: PassContext) -> list[Kernel]:
        """Make linears of one value into one buffer (rows, sum of their widths)."""
        kernels, offset, stride = [], 0, _rows(linears)
        for run in self.runs(linears):
            kernels += self.kernels(run, out, context, stride=stride, offset=offset)
            offset += _rows(run)
        return kernels

    def kernels(
        self, run: Sequence[Linear], out: Binding, context: PassContext, epilogue: Epilogue = Epilogue.STORE,
        activation: Activation = "silu", cap: float = 0.0, stride: int = 0, offset: int = 0, makes: Value | None = None,
    ) -> list[Kernel]:  # fmt: skip
        """Return a kernel for each part of a run's matrix. `out` is (rows, stride), the run's own rows if stride is 0.

        With GATE the run is a gate and its factor, after the gate's `activation`. `cap` is a soft-cap, not for tiled
        passes. `makes` is the value that these kernels complete.
        """
        matrix, given = self.matrix(run), self.input(run, context)
        total, gated = _rows(run), epilogue == Epilogue.GATE
        gelu = gated and activation == "gelu"
        suffix = ("", " + residual", " + GeGLU" if gelu else " + SwiGLU")[epilogue]
        name = f"linear {matrix.columns}x{total} {matrix.format.name}{suffix}"
        x = run[0].x
        logits = context.residual is not None and context.residual in (x, given.norm.x if given.norm else x)
        integers = context.tiled and self._builder.tiles(name, matrix.format, min(matrix.parts[0].rows, total)).integers
        adapted, found = self.lora(name, run, context, 6, integers)
        next_of = self.next_of(makes, context) if makes and len(matrix.parts) == 1 else None
        for part in matrix.parts:
            rows = min(part.rows, total)
            n = rows // 2 if gated else rows
            common = {
                "N": n, "FIRST_ROW": run[0].first_row if total < matrix.rows else 0,
                "Y_STRIDE": stride or (total // 2 if gated else total), "Y_OFFSET": offset + part.first_row,
                "EPILOGUE": int(epilogue), "GELU": gelu, **given.constants(part.first_row),
            }  # fmt: skip
            cost = linear_cost(matrix, rows, n if epilogue == Epilogue.ADD else 0, n, given.bias_at is not None)
            bindings = (self._state, part.quants, part.scales, given.x, given.vectors, out)
            following = None
            lora = replace(adapted, first_row=adapted.first_row + part.first_row, gated=gated) if adapted else None
            if context.tiled:
                tiles = self._builder.tiles(name, matrix.format, rows)
                if tiles.integers:
                    limbs, made = self._limbs(name, x, given.x, context)
                    found += made
                    bindings = (self._state, part.quants, part.scales, limbs, given.vectors, out)
                snippets = self._builder.reader(matrix.format)
                if lora:
                    snippets |= {"lora_tile_none": "lora_tile", "lora_binding": "lora_binding_6"}
                    common |= lora.constants
                pipeline = self._builder.pipeline(
                    "matmul_integer" if tiles.integers else "matmul", snippets, K=x.width, BLOCKS=part.blocks,
                    SLICES=tiles.slices, WIDE=tiles.wide, **common,
                )  # fmt: skip
                grid = folded(n, tiles.rows // (2 if gated else 1), tiles.x_rows)
            else:
                shape = self.shape(name, matrix, given, context, n)
                read, made = self.read(name, shape, x, given, context, logits)
                found += made
                bindings = (self._state, part.quants, part.scales, read.x, read.vectors, out)
                if context.persistent:
                    phase = self._builder.phase(
                        "matvec", matrix, part, shape, n, 2 if gated else 1, read.norm, LOGITS=False, CAP=cap, **common
                    )
                    found.append(Kernel(name, 0, fixed(bindings), folded(n, 1, 1), cost, phase=phase))
                    continue
                pipeline, grid, following = self._builder.matvec(
                    "matvec", matrix, part, shape, -(-n // shape.rows), shape.rows * (2 if gated else 1),
                    context.rows, context.single_row, read.norm, lora, next_of, LOGITS=logits, CAP=cap,
                    **common,
                )  # fmt: skip
            found.append(Kernel(lora_name(name, lora), pipeline, with_lora(bindings, lora, following), grid, cost))
        return found

    def experts(self, op: ExpertLinear) -> Kernel:
        """Return a kernel that multiplies each row by the matrices of its experts, one product after the other."""
        matrix, used, slots = self._arena.place([op.weight], whole=True), op.used, op.x.width // op.k
        (part,), values = matrix.parts, self._values
        name = f"{used} experts {op.k}x{op.n} {matrix.format.name}"
        shape = self._builder.shape(name, matrix, "one")
        (constants, snippets), each, _ = self._builder.matvec_part(
            matrix, part, shape, shape.rows, "one", False, None, 1, None, False,
            N=op.n, EXPERTS=self._weights[op.weight][0], USED=used, SHARED=slots == 1,
        )  # fmt: skip
        pipeline = self._builder.pipeline("expert_linear", dict(snippets), **constants)
        x, grid = values.of(op.x), folded(-(-op.n // shape.rows), each, 1)
        bindings = (self._state, part.quants, part.scales, x, x, values.of(op.out), values.of(op.route))
        one = linear_cost(matrix, op.n, 0, op.n)
        # Rows seldom have the same experts: each reads the weights of its own.
        cost = Cost(row_bytes=used * (one.fixed_bytes + one.row_bytes), row_flops=used * one.row_flops)
        return Kernel(name, pipeline, fixed(bindings), lambda m: grid(m * used), cost)

    def shape(
        self, name: str, matrix: WeightMatrix, given: LinearInput, context: PassContext, items: int
    ) -> MatvecShape:
        """Return the shape of the matvec of this name, for a pass without tiles. `items`: row tiles of one row."""
        if context.persistent:
            return context.persistent.matvec(self._builder.lanes(matrix.columns), items)
        # An adapter adds a product of x before its norm is scaled.
        return self._builder.shape(name, matrix, context.rows, may_read=not (context.rank and given.norm))

    def read(
        self, name: str, shape: MatvecShape, x: Value, given: LinearInput, context: PassContext, logits: bool = False
    ) -> tuple[LinearInput, list[Kernel]]:
        """Return the input x of a matvec of this shape, and the kernel that makes it, unless one of the last did."""
        if shape.columns != RowColumns.READ:
            return given, []
        limbs, norm, width = self._limbs_place(x), given.norm, x.width
        read = replace(given, x=limbs, norm=None)
        if context.limbs.get(width) == x:
            return read, []
        context.limbs[width] = x
        shapes = self._builder.shapes
        pipeline = self._builder.pipeline(
            "row_limbs", {"reduce": shapes.reduce}, K=width, NORM=norm is not None, EPS=norm.eps if norm else 0.0,
            LANES=shapes.lanes, WORKGROUP=max(shapes.lanes, 128), LOGITS=logits,
        )  # fmt: skip
        weight = self._vectors.norm(norm) if norm else given.x
        cost = Cost(row_bytes=4 * width + width // BLOCK * LIMBS_BYTES)
        bindings = fixed((self._state, given.x, weight, limbs))
        grid = per_row(width // 16, max(shapes.lanes, 128))
        return read, [Kernel(limbs_name(name), pipeline, bindings, grid, cost)]

    def lora(
        self, name: str, run: Sequence[Linear], context: PassContext, binding: int, integers: bool = False
    ) -> tuple[LoraPart | None, list[Kernel]]:
        """Return the LoRA part of the kernels of a run, and the kernel that makes A x before them, if any.

        `name` is the kernels', `binding` the number of their next one. `integers`: they read x in integers.
        """
        if not context.rank:
            return None, []
        sets = self.loras[context.rank].of(run[0])
        made = []
        if sets.linears[0] not in context.parts:
            context.parts[sets.linears[0]] = 1
            made = [self._lora_down(name, run, context, sets, integers)]
        how = "lora_read"
        if context.rows == "one" and self._builder.shapes.lanes > 1:
            how = "lora_parts"
        part = LoraPart(how, sets, binding, sets.first_row(run[0]), context.parts[sets.linears[0]])
        return part, made

    def next_of(self, makes: Value, context: PassContext) -> NextOf | None:
        """Return how the kernel that makes a value leaves parts of A x for the linears that read it."""
        reader = context.readers.get(makes)
        if reader is None:
            return None
        sets = self.loras[context.rank].of(reader)

        def following(tile: int, groups: int, workgroup: int) -> LoraNext | None:
            if found := sets.next(tile, groups, workgroup):
                context.parts[sets.linears[0]] = groups
            return found

        return following

    def _lora_down(
        self, name: str, run: Sequence[Linear], context: PassContext, sets: OperationSets, integers: bool
    ) -> Kernel:
        shapes, given, x = self._builder.shapes, self.input(run, context), run[0].x
        tile = 1 if context.single_row else shapes.batch_tile if shapes.lanes == 1 else _DOWN_TILE
        workgroup = sets.rank if shapes.lanes == 1 else min(_DOWN_WORKGROUP, self._builder.max_workgroup)
        subgroups = shapes.reduce == "reduce_subgroup"
        lanes = max(sets.rank, shapes.lanes) if subgroups else sets.rank
        bindings = [self._state, given.x]
        snippets = {"reduce": shapes.reduce if subgroups else "reduce_single"}
        beside = integers and context.limbs.get(x.width) != x
        if beside:
            context.limbs[x.width] = x
            snippets["limbs_of_rows"] = "limbs_beside"
        pipeline = self._builder.pipeline(
            "lora_down", snippets, K=x.width, M_TILE=tile, WORKGROUP=workgroup, LANES=lanes, LORA_LANES=lanes,
            **{**sets.constants, "LORA_A": sets.a_at(given.norm is not None)},
        )  # fmt: skip
        after = (self._limbs_place(x),) if beside else ()
        inner, linears = sets.inner, len(sets.linears)
        cost = Cost(fixed_bytes=4 * x.width * inner, row_bytes=4 * (x.width + inner), row_flops=2 * x.width * inner)
        grid: Grid = lambda m: (linears + beside, 1, -(-m // tile))  # noqa: E731
        return Kernel(f"LoRA {x.width}x{inner}", pipeline, lambda: (*bindings, sets.binding(), *after), grid, cost)

    def _limbs(self, name: str, x: Value, place: Binding, context: PassContext) -> tuple[Binding, list[Kernel]]:
        """Return x in integers, and the kernel that makes them unless the last linear of this width read the same x."""
        blocks, limbs = x.width // BLOCK, self._limbs_place(x)
        if context.limbs.get(x.width) == x:
            return limbs, []
        context.limbs[x.width] = x
        pipeline = self._builder.pipeline("limbs", {}, K=x.width, WORKGROUP=64)
        cost = Cost(row_bytes=4 * x.width + blocks * LIMBS_BYTES)
        bindings = fixed((self._state, place, limbs))
        return limbs, [Kernel(limbs_name(name), pipeline, bindings, per_row(blocks, 64), cost)]

    def _limbs_place(self, x: Value) -> Binding:
        return self._values.scratch("limbs", x.width // BLOCK * LIMBS_BYTES // 4)

    def _is_whole(self, run: Sequence[Linear]) -> bool:
        """True if linears read all rows of their tensors."""
        names = {linear.weight for linear in run}
        return _rows(run) == sum(self._weights[name][0] for name in names)


def with_lora(
    bindings: tuple[Binding, ...], lora: LoraPart | None, following: LoraNext | None = None
) -> Callable[[], tuple[Binding, ...]]:
    """Return bindings, then the sets that a kernel reads, and those for which it leaves parts of A x."""
    sets = [one.sets for one in (lora, following) if one]
    return fixed(bindings) if not sets else lambda: (*bindings, *(one.binding() for one in sets))


def lora_name(kernel: str, lora: LoraPart | None) -> str:
    return f"{kernel} + LoRA" if lora else kernel


def limbs_name(linear: str) -> str:
    """Return the name of the kernel that makes the input of a linear's kernel of this name."""
    return f"limbs for {linear}"


def _rows(linears: Sequence[Linear]) -> int:
    return sum(linear.out.width for linear in linears)
