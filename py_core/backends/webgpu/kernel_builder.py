"""Composes and compiles the kernels of a model, and chooses the shapes of its matvecs and matmuls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from py_core.backends.webgpu.host import AdapterInfo, Host
from py_core.backends.webgpu.kernel_shapes import KernelShapes, MatmulShape, MatvecShape, RowColumns
from py_core.backends.webgpu.lora import LoraNext, LoraPart, NextOf
from py_core.backends.webgpu.plan import Grid, folded
from py_core.backends.webgpu.shaders import Constant, Part, Phase, binding_access, compose, compose_pair
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightMatrix
from py_core.backends.webgpu.weights.layout import BLOCK, LAYOUTS, blocks_of
from py_core.formats.quantization import BlockFormat
from py_core.models import graph as ops

_STAGED_BLOCK = {"x_staged": 144, "x_limbs": 80, "x_limbs_rows": 84}
"""Bytes of 32 values of x in workgroup memory, by snippet."""
_BLOCKS_AHEAD = 8
"""Blocks of weights that an invocation holds."""
_WIDE_ROWS = 2048
"""From this many rows of W on, a matmul has enough wide tiles for a GPU."""
_COLUMNS = {RowColumns.MADE: "x_limbs_rows", RowColumns.READ: "x_limbs_read"}
_FEW_SHAPES = [
    (RowColumns.MADE, 16, 256, 2, 1, 2),
    (RowColumns.MADE, 8, 128, 2, 1, 2),
    (RowColumns.MADE, 8, 128, 1, 1, 2),
    (RowColumns.MADE, 8, 256, 2, 1, 4),
    (RowColumns.MADE, 8, 256, 1, 1, 4),
    (RowColumns.MADE, 16, 128, 2, 1, 4),
    (RowColumns.MADE, 16, 256, 1, 1, 4),
    (RowColumns.MADE, 16, 128, 1, 1, 8),
    (RowColumns.MADE, 32, 256, 2, 1, 8),
    (RowColumns.MADE, 32, 256, 4, 1, 4),
    (RowColumns.READ, 32, 128, 2, 2, 8),
    (RowColumns.READ, 8, 128, 2, 1, 8),
    (RowColumns.READ, 16, 128, 4, 1, 8),
    (RowColumns.READ, 32, 128, 4, 1, 4),
    (RowColumns.READ, 32, 128, 1, 2, 8),
    (RowColumns.READ, 32, 128, 4, 2, 8),
    (RowColumns.READ, 32, 128, 2, 2, 4),
    (RowColumns.READ, 32, 128, 8, 2, 4),
    (RowColumns.READ, 32, 128, 2, 4, 4),
    (RowColumns.READ, 32, 256, 2, 4, 8),
]
"""Shapes for several rows of x: columns, the most lanes, workgroup, rows of W, subgroups, rows of x."""
_SLICES = 4
_ARRIVED_BLOCK = 128
"""Bytes of 32 values of x that a phase of a persistent kernel waits for."""
_NEXT_BYTES = 1024
_INTEGER_TILES = [MatmulShape(True, slices, wide) for wide in (8, 4) for slices in (2, 4)]


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


Shape = TypeVar("Shape", MatvecShape, MatmulShape)


@dataclass
class ShapeChoices(Generic[Shape]):
    """The shapes that kernels of one kind of pass may have, by the kernel's name."""

    possible: dict[str, list[Shape]] = field(default_factory=dict)
    """The usual one first. Filled as kernels are made."""
    chosen: dict[str, Shape] = field(default_factory=dict)
    """Those that were measured to be the fastest; impossible ones do no harm."""

    def possible_of(self, kernel: str, make: Callable[[], list[Shape]]) -> list[Shape]:
        if kernel not in self.possible:
            self.possible[kernel] = make()
        return self.possible[kernel]


class KernelBuilder:
    """Composes and compiles kernels, each shader once."""

    def __init__(self, host: Host, shapes: KernelShapes) -> None:
        self._host, self.shapes = host, shapes
        self._pipelines: dict[object, int] = {}
        self.one: ShapeChoices[MatvecShape] = ShapeChoices()
        """Shapes of matvecs of one row of x."""
        self.few: ShapeChoices[MatvecShape] = ShapeChoices()
        """Shapes of matvecs of several rows of x."""
        self.many: ShapeChoices[MatmulShape] = ShapeChoices()
        """Shapes of matmuls of many rows of x."""
        self.usual_tiles: list[MatmulShape] = []
        """Measured shapes, the most frequent first: for matmuls that were not measured."""

    @property
    def max_workgroup(self) -> int:
        """The most invocations of a workgroup."""
        return self._host.adapter.max_workgroup_size

    def pipeline(self, name: str, snippets: dict[str, str], **constants: Constant) -> int:
        # Each layer asks again: composing the text only to find the kernel compiled would take longer than lowering.
        key = (name, tuple(snippets.items()), tuple(constants.items()))
        if key not in self._pipelines:
            wgsl = compose(name, {"MAX_ROWS": self.shapes.max_rows, **constants}, snippets)
            self._pipelines[key] = self._host.pipeline(wgsl, binding_access(wgsl), name)
        return self._pipelines[key]

    def reader(self, form: BlockFormat) -> dict[str, str]:
        """Return the snippets that read a format."""
        return {"dequantize": f"dequantize_{form.name.lower()}", "halves": self.shapes.halves}

    def shape(self, kernel: str, matrix: WeightMatrix, rows: str, may_read: bool = True) -> MatvecShape:
        """Return the shape of a matvec: each lane takes whole blocks of 32 columns. `may_read` lets it read limbs."""
        k, shape = matrix.columns, self.shapes.matvec
        if rows != "one" and self.integers(matrix):
            possible = self.few.possible_of(kernel, lambda: self._few_shapes(k))
            possible = [one for one in possible if may_read or one.columns == RowColumns.MADE]
            chosen = self.few.chosen.get(kernel)
            if possible:
                return chosen if chosen in possible else possible[0]
        if rows == "one":
            chosen = self.one.chosen.get(kernel)
            if chosen in self.one.possible_of(kernel, lambda: candidates(self.shapes, self._host.adapter, k)):
                shape = chosen
        return replace(shape, lanes=self.lanes(k, shape.lanes))

    def lanes(self, k: int, most: int | None = None) -> int:
        """Return the lanes that share a row of k columns: each has a block."""
        lanes = most or self.shapes.lanes
        while lanes > 1 and lanes > blocks_of(k):
            lanes //= 2
        return lanes

    def integers(self, matrix: WeightMatrix) -> bool:
        """True if matvecs multiply a matrix in integers."""
        return self.shapes.integer_dot and LAYOUTS[matrix.format.name].quantized

    def _few_shapes(self, k: int) -> list[MatvecShape]:
        """Return shapes that may be fast for several rows of x. A workgroup that makes x integers keeps all."""
        adapter, most = self._host.adapter, self.lanes(k)
        found = []
        for columns, lanes, workgroup, rows, subgroups, x_rows in _FEW_SHAPES:
            lanes = min(lanes, most)
            if subgroups > 1 and subgroups * lanes > blocks_of(k):
                continue
            shape = MatvecShape(lanes, max(workgroup, lanes * subgroups), rows, 1, subgroups, columns, x_rows)
            staged = x_rows * (k // BLOCK * _STAGED_BLOCK["x_limbs_rows"] + 4) if columns == RowColumns.MADE else 0
            totals = 4 * x_rows * 2 * rows * (workgroup // lanes)
            totals += 16 * workgroup if self.shapes.reduce == "reduce_workgroup" else 0
            if staged + totals + 64 <= adapter.max_workgroup_storage and shape.workgroup <= adapter.max_workgroup_size:
                found.append(shape)
        return list(dict.fromkeys(found))

    def tiles(self, kernel: str, form: BlockFormat, rows: int) -> MatmulShape:
        """Return the tiles of a matmul over `rows` rows of W."""
        possible = self.many.possible_of(kernel, lambda: self._possible_tiles(form, rows))
        usual = next((shape for shape in self.usual_tiles if shape in possible), possible[0])
        chosen = self.many.chosen.get(kernel)
        return chosen if chosen in possible else usual

    def _possible_tiles(self, form: BlockFormat, rows: int) -> list[MatmulShape]:
        """Return the possible tiles. Few rows of W make few tiles: narrow ones, for more of them."""
        adapter = self._host.adapter
        wide, narrow = MatmulShape(False, _SLICES, 2), MatmulShape(False, 1, 1)
        if rows >= _WIDE_ROWS and adapter.max_workgroup_storage >= wide.memory:
            usual = wide
        else:
            usual = replace(narrow, slices=min(_SLICES, adapter.max_workgroup_storage // narrow.memory))
        integers = self.shapes.integer_dot and LAYOUTS[form.name].quantized
        # Shorter passes would fill only half a tile.
        if not integers or self.shapes.max_rows < 2 * _INTEGER_TILES[0].x_rows:
            return [usual]
        return [usual] + [
            tiles
            for tiles in _INTEGER_TILES
            if tiles.memory <= adapter.max_workgroup_storage and tiles.workgroup <= adapter.max_workgroup_size
        ]

    def gradient_tiles(self, columns: int) -> MatmulShape:
        """Return the tiles of a product with `columns` columns of W: its `rows` are columns there."""
        memory = self._host.adapter.max_workgroup_storage
        for shape in (MatmulShape(False, _SLICES, 2), MatmulShape(False, _SLICES, 1), MatmulShape(False, 2, 1)):
            if shape.memory <= memory and shape.rows <= columns:
                return shape
        return MatmulShape(False, 1, 1)

    def pair(self, name: str, parts: Sequence[Part], groups: int) -> int:
        """Compile two variants of a kernel in one (`compose_pair`)."""
        key = (name, groups, *((tuple(constants.items()), tuple(snippets.items())) for constants, snippets in parts))
        if key not in self._pipelines:
            wgsl = compose_pair(name, parts, groups)
            self._pipelines[key] = self._host.pipeline(wgsl, binding_access(wgsl), name)
        return self._pipelines[key]

    def matvec(
        self, shader: str, matrix: WeightMatrix, part: MatrixPart, shape: MatvecShape, items: int, rows: int,
        pass_rows: str, single_row: bool, norm: ops.RMSNorm | None, lora: LoraPart | None = None,
        next_of: NextOf | None = None, **constants: Constant,
    ) -> tuple[int, Grid, LoraNext | None]:  # fmt: skip
        """Return a kernel whose lanes share the `rows` rows of W of an item, and its grid, for a pass without tiles;
        and how it leaves parts of another linear's A x, if `next_of` is for its output."""
        (all_constants, snippets), each, tile = self.matvec_part(
            matrix, part, shape, rows, pass_rows, single_row, norm, 1, lora, False, **constants
        )
        following = next_of(each * shape.rows, -(-items // each), shape.workgroup) if next_of else None
        if following:
            all_constants = {**following.constants, **all_constants}
            snippets = {**snippets, **following.snippets(7)}
        return self.pipeline(shader, dict(snippets), **all_constants), folded(items, each, tile), following

    def phase(
        self, shader: str, matrix: WeightMatrix, part: MatrixPart, shape: MatvecShape, items: int, rows: int,
        norm: ops.RMSNorm | None, **constants: Constant,
    ) -> Phase:  # fmt: skip
        """Return a matvec of one row as a phase of a persistent kernel."""
        (made, snippets), each, _ = self.matvec_part(
            matrix, part, shape, rows, "one", True, norm, 1, None, True, **constants
        )
        return Phase(shader, made, snippets, -(-items // each))

    def matvec_part(
        self, matrix: WeightMatrix, part: MatrixPart, shape: MatvecShape, rows: int, pass_rows: str, single_row: bool,
        norm: ops.RMSNorm | None, shares: int, lora: LoraPart | None, waits: bool, **constants: Constant,
    ) -> tuple[Part, int, int]:  # fmt: skip
        """Return the part of a matvec, the items of a workgroup, and the rows of x. `shares` kernels in one share the
        workgroup memory. `waits`: x may be handed on by earlier phases of a persistent
        kernel, in which attention has the other half of the memory."""
        several = pass_rows != "one"
        integers = self.integers(matrix) and not (several and shape.columns == RowColumns.FLOATS)
        tile = (shape.x_rows if integers else self.shapes.batch_tile) if several else 1
        reduce = self.shapes.reduce if shape.lanes > 1 or integers else "reduce_single"
        columns, chunk, row_tiles = "x_direct", shape.lanes, 1
        if self.shapes.stage_columns:
            columns = "x_limbs" if integers else "x_staged"
            if integers and several:
                columns = _COLUMNS[shape.columns]
            # Besides x: sums of squares, values that lanes exchange, and sums of lane groups.
            sums = 4 * tile + (16 if reduce == "reduce_workgroup" else 0)
            totals = 4 * tile * shape.row_tiles * rows * (shape.workgroup // shape.lanes)
            memory = (
                self._host.adapter.max_workgroup_storage // (2 if waits else shares)
                - sums * shape.workgroup
                - totals
                - 32
            )
            if lora and pass_rows == "one":
                memory -= 4 * shape.workgroup + _NEXT_BYTES  # for lora_next_part
            if columns == "x_limbs_rows":
                chunk = matrix.columns // BLOCK
            elif columns == "x_limbs_read":
                chunk = shape.lane_group
            else:
                room = memory // (tile * _STAGED_BLOCK[columns] + waits * _ARRIVED_BLOCK)
                chunk = chunk_blocks(matrix.columns, shape.lane_group, rows, room)
            # Columns copied chunk by chunk would have to be copied again for each row tile.
            row_tiles = shape.row_tiles if chunk == blocks_of(matrix.columns) else 1
        snippets = {**self.reader(matrix.format), "reduce": reduce, "columns": columns}
        if columns == "x_limbs_read":
            snippets["x_binding"] = "x_binding_limbs"
        if lora:
            snippets |= lora.snippets
            constants |= lora.constants
        made = dict(
            MAX_ROWS=self.shapes.max_rows, K=matrix.columns, BLOCKS=part.blocks,
            NORM=norm is not None, EPS=norm.eps if norm else 0.0,
            LANES=shape.lanes, SUBGROUPS=shape.subgroups, ROW_TILES=row_tiles, ROWS=rows, M_TILE=tile, CHUNK=chunk,
            WORKGROUP=shape.workgroup, SINGLE_ROW=single_row, **constants,
        )  # fmt: skip
        return (made, snippets), shape.workgroup // shape.lane_group * row_tiles, tile


def chunk_blocks(k: int, lane_group: int, rows: int, room: int) -> int:
    """Return the blocks of x that a matvec keeps in workgroup memory at a time, if there is room for them.

    A lane loads its part of these columns for `rows` rows of W at once: as many blocks as its registers hold.
    """
    chunk = lane_group * max(1, _BLOCKS_AHEAD // rows)
    return max(1, min(blocks_of(k), chunk, room // lane_group * lane_group or room))
