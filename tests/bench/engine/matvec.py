"""The speed at which the kernel of decoding reads matrices, by format: its share of the adapter's highest speed.

    python -m tests.bench matvec [--sizes 4096x11008,11008x4096] [--formats Q4_K,Q6_K] [--shapes all]

Sizes are rows x columns. "In a chain" each product waits for the one before, as in a model, so that its beginning and
its end count; "side by side" it does not. Weights are random, and enough copies are read in turns that no cache keeps
them. The shape is the fastest of those that autotune tries (in a chain), or of all that make sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product

import numpy as np
from rich.table import Table

from py_core.backend_errors import BackendError
from py_core.backends.sampling_state import ROW_BYTES, state_bytes
from py_core.backends.webgpu.host import Binding, Dispatch
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_builder import KernelBuilder, candidates
from py_core.backends.webgpu.kernel_shapes import KernelShapes, MatvecShape, choose_halves, choose_shapes
from py_core.backends.webgpu.profiling import measure_bandwidth, measure_lists
from py_core.backends.webgpu.weights.arena import MatrixPart, WeightMatrix
from py_core.backends.webgpu.weights.layout import BLOCK, LAYOUTS
from py_core.formats.quantization import FORMATS
from tests.bench.reporting import options_of, print_tables, write_figures

CACHES = 256 << 20
"""The least bytes that one round reads: more than any cache holds."""


@dataclass(frozen=True)
class Reading:
    """The time of a matrix in one shape, in seconds."""

    size: str
    format: str
    shape: list[int]
    nbytes: int
    chained: float
    apart: float


class Bench:
    def __init__(self) -> None:
        self.host = WgpuHost()
        self.shapes = choose_shapes(self.host.adapter, 64)
        self._random = np.random.default_rng(7)

    def buffer(self, data: bytes, label: str) -> Binding:
        binding = Binding(self.host.create_buffer(-(-len(data) // 16) * 16, label), 0, len(data))
        self.host.write(binding.buffer, 0, data)
        return binding

    def matrix(self, form: str, rows: int, columns: int) -> WeightMatrix:
        """Random codes, and scales of a sensible size: halves between 0.002 and 0.1."""
        layout, blocks = LAYOUTS[form], rows * columns // BLOCK
        quants = self.buffer(self._random.bytes(4 * blocks * layout.quant_words), "codes")
        words = layout.sections(blocks)[2]
        scales = self._random.integers(0x1800, 0x2E00, 2 * words, np.uint16).tobytes()
        part = MatrixPart(quants, self.buffer(scales, "scales") if words else quants, blocks, 0, rows)
        return WeightMatrix(FORMATS[form], rows, columns, (part,))

    async def measure(self, form: str, rows: int, columns: int, shapes: list[MatvecShape]) -> list[Reading]:
        fmt = FORMATS[form]
        nbytes = rows * columns // fmt.block_size * fmt.block_bytes
        copies = max(2, -(-(CACHES >> 4 * self.host.adapter.software) // nbytes))
        matrices = [self.matrix(form, rows, columns) for _ in range(copies)]
        state = self.buffer(state_bytes([(0, 0, 0)]) + bytes(ROW_BYTES * (self.shapes.max_rows - 1)), "state")
        x = self.buffer(self._random.standard_normal(columns).astype(np.float32).tobytes(), "x")
        outs = [self.buffer(bytes(4 * rows), "y") for _ in matrices]
        builder = KernelBuilder(self.host, self.shapes)
        found, lists = [], []
        for shape in shapes:
            items = -(-rows // shape.rows)
            pipeline, grid, _ = builder.matvec(
                "matvec", matrices[0], matrices[0].parts[0], shape, items, shape.rows, "one", True, None,
                N=rows, FIRST_ROW=0, Y_STRIDE=rows, Y_OFFSET=0, EPILOGUE=0, LOGITS=False, ADD_BIAS=False, BIAS_AT=0,
                GELU=False, CAP=0.0,
            )  # fmt: skip
            try:
                await self.host.check()
            except BackendError as error:
                print(form, shape, error)
                continue
            found.append(shape)
            for many in (outs[:1] * copies, outs):
                bindings = [
                    (state, one.parts[0].quants, one.parts[0].scales, x, x, y)
                    for one, y in zip(matrices, many, strict=True)
                ]
                lists.append(self.host.record([Dispatch(pipeline, one, grid(1)) for one in bindings]))
        seconds = [of_list / copies for of_list in await measure_lists(self.host, lists)]
        for one in lists:
            self.host.forget(one)
        for binding in (state, x, *outs, *(part for one in matrices for part in _buffers(one))):
            self.host.destroy_buffer(binding.buffer)
        return [
            Reading(f"{rows}x{columns}", form, shape.as_list(), nbytes, chained, apart)
            for shape, chained, apart in zip(found, seconds[::2], seconds[1::2], strict=True)
        ]


def _buffers(matrix: WeightMatrix) -> set[Binding]:
    return {matrix.parts[0].quants, matrix.parts[0].scales}


def all_shapes(shapes: KernelShapes, columns: int) -> Iterator[MatvecShape]:
    """Yield the shapes that keep at most four blocks of x in an invocation, and the usual shape."""
    yield shapes.matvec
    blocks, lanes = columns // BLOCK, shapes.lanes
    lane_groups = {lanes * subgroups for subgroups in (1, 2, 3, 4, 6, 8, 11, 12)}
    for lane_group, rows, row_tiles, multiple in product(
        sorted(lane_groups), (1, 2, 4), (1, 2, 4, 8, 16), (1, 2, 4, 8)
    ):
        each = -(-blocks // lane_group)
        waste = each * lane_group / blocks
        if 128 <= lane_group * multiple <= 768 and waste < 1.3 and (each <= 4 if row_tiles > 1 else each * rows <= 8):
            yield MatvecShape(lanes, lane_group * multiple, rows, row_tiles, lane_group // lanes)


def table_of(found: list[Reading], limit: float, best: int) -> Table:
    """The fastest shapes of each matrix, in a chain."""
    table = Table(title=f"of {limit / 1e12:.2f} TB/s")
    for name in (
        "rows x columns",
        "format",
        "lanes, workgroup, rows, row tiles, subgroups",
        "MB",
        "us in a chain",
        "",
        "apart",
        "",
    ):
        table.add_column(name, justify="right")
    for (size, form), readings in groupby(found, key=lambda one: (one.size, one.format)):
        for one in sorted(readings, key=lambda one: one.chained)[:best]:
            row = [size, form, ", ".join(map(str, one.shape)), f"{one.nbytes / 1e6:.1f}"]
            for seconds in (one.chained, one.apart):
                row += [f"{seconds * 1e6:.1f}", f"{one.nbytes / seconds / limit:.0%}"]
            table.add_row(*row)
    return table


async def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--sizes", default="4096x11008,11008x4096,151936x2048")
    parser.add_argument("--formats", default=",".join(name for name, one in LAYOUTS.items() if name != "F32"))
    parser.add_argument("--shapes", choices=["tuned", "all"], default="tuned")
    parser.add_argument("--best", type=int, default=1, help="rows to print of each")
    options = parser.parse_args()
    bench = Bench()
    shapes = bench.shapes = replace(bench.shapes, halves=await choose_halves(bench.host))
    limit = await measure_bandwidth(bench.host)
    found: list[Reading] = []
    for form, size in product(options.formats.split(","), options.sizes.split(",")):
        rows, columns = map(int, size.split("x"))
        every = options.shapes == "all"
        tried = list(all_shapes(shapes, columns)) if every else candidates(shapes, bench.host.adapter, columns)
        found += await bench.measure(form, rows, columns, tried)
    adapter = bench.host.adapter.name
    readings = [asdict(one) for one in found]
    write_figures(options, {"adapter": adapter, "bytes_per_second": limit, "readings": readings})
    print_tables(table_of(found, limit, options.best))
