"""A decode step in persistent kernels of several shapes, beside the step of one dispatch a kernel (wgpu-py).

    python -m tests.bench persistent_kernels [--model FILE | --shape qwen2.5-0.5b] [--tried 64x256,128x512]
        [--positions 100,511,1000,3000] [--runs 100] [--kernels] [--json FILE]

Each shape is workgroups x invocations. Microseconds of a step by the GPU's own clock, in turns, medians; "wall" is a
step as decoding runs it, at the first position. Of `--runs` steps there: how many gave the same bits as the first, and
how far logits are from the usual ones, as a share of the largest. --kernels prints the kernels of the usual step and
of the fastest. Without --model and --shape the usual model runs; with --shape one of that shape with random weights.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from py_core.backend_errors import BackendError
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.backends.webgpu.backend import WebGPUBackend, load_webgpu
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.lowering.persistent import Unsuited
from py_core.backends.webgpu.plan import Plan
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.settings import DEFAULTS
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.bench.engine.adapters_measure import Tuning
from tests.bench.engine.random_gguf import RANDOM_FORMATS, SHAPES, write
from tests.bench.reporting import options_of, print_tables, write_figures

USUAL = "one dispatch a kernel"
ROUNDS = 3


class Bench:
    """A model on the GPU, and a sequence of random tokens whose steps are run again and again."""

    def __init__(self, backend: WebGPUBackend, positions: list[int]) -> None:
        self.backend, self.device, self.host = backend, backend.device, backend.device.host
        self.sequence = backend.new_sequence()
        self.tokens = np.random.default_rng(0).integers(3, self.device.config.vocab_size, max(positions) + 1).tolist()
        self.tried: dict[str, tuple[Plan, tuple[Binding, ...]]] = {}
        """Each plan of one row, and its own buffers: the first tells whether a workgroup gave up."""

    async def make(self, shapes: list[PersistentShape]) -> None:
        await self.backend.tune(lambda: False)
        await self.backend.prefill(self.sequence, self.tokens)
        lowering = self.device._lowering
        self.tried[USUAL] = (lowering.plan("one"), ())
        for shape in shapes:
            with suppress(Unsuited):
                try:
                    made = lowering.persistent(shape)
                    await self.host.check()
                    self.tried[f"{shape.groups} x {shape.workgroup}"] = made
                except BackendError as error:
                    print(shape, error)

    def write_state(self, position: int) -> None:
        row = (self.tokens[position], position, self.sequence.slot)
        self.device.write_state(state_bytes([row], GREEDY))

    def use(self, name: str) -> None:
        self.device._plans["one"] = self.tried[name][0]
        self.device._forget_lists()

    def recorded(self, name: str, position: int) -> int:
        """Record the list of a step, which the caller forgets."""
        self.use(name)
        return self.host.record([one.dispatch() for one in self.device.launches("step", 1, position + 1)])

    async def logits(self, recorded: int, position: int) -> np.ndarray:
        self.write_state(position)
        self.host.submit([recorded])
        return (await self.device.read_logits(1))[0]

    async def times(self, position: int) -> dict[str, float]:
        """Return the seconds of a step in each plan."""
        lists = {name: self.recorded(name, position) for name in self.tried}
        rounds = [
            await measure_lists(self.host, list(lists.values()), lambda: self.write_state(position))
            for _ in range(ROUNDS)
        ]
        for one in lists.values():
            self.host.forget(one)
        return {name: median(found) for name, found in zip(lists, zip(*rounds, strict=True), strict=True)}

    async def rightness(self, name: str, runs: int, position: int) -> dict[str, Any]:
        usual, recorded = self.recorded(USUAL, position), self.recorded(name, position)
        expected, first = [await self.logits(one, position) for one in (usual, recorded)]
        same = sum([np.array_equal(await self.logits(recorded, position), first) for _ in range(runs)])
        own = self.tried[name][1]
        gave_up = any([any(await self.host.read(one.buffer, one.offset, 4)) for one in own[:1]])
        self.host.forget(usual)
        self.host.forget(recorded)
        apart = float(np.abs(first - expected).max() / np.abs(expected).max())
        return {"same": same, "apart": apart, "gave_up": gave_up}


async def measure(path: Path, options: Any) -> dict[str, Any]:
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header, context=8192)
    settings = replace(DEFAULTS, persistent=())  # they are tried here
    backend = await load_webgpu(WgpuHost(), source, header, config, graph, tuning=Tuning(), settings=settings)
    bench = Bench(backend, options.positions)
    await bench.make(options.tried)
    by_position = {position: await bench.times(position) for position in options.positions}
    rows: list[dict[str, Any]] = []
    for name in bench.tried:
        right = await bench.rightness(name, options.runs, options.positions[0])
        bench.use(name)
        profile = await backend.profile(options.positions[0])
        rows.append({
            "kernels": name, "dispatches": len(bench.device.launches("step", 1, 1)),
            "wall_us": 1e6 * profile.wall_seconds,
            "step_us": {position: 1e6 * of_plan[name] for position, of_plan in by_position.items()}, **right,
            "profile": [[cost.name, cost.count, 1e6 * cost.seconds / cost.count] for cost in profile.kernels],
        })  # fmt: skip
    return {"adapter": bench.host.adapter.name, "runs": options.runs, "rows": rows}


def tables_of(result: dict[str, Any], with_kernels: bool) -> list[Table]:
    rows = result["rows"]
    first, *_ = positions = list(rows[0]["step_us"])
    table = Table(title=f"A step in us at each position; wall at {first}; {result['adapter']}")
    headings = ["kernels", "dispatches", *map(str, positions), "wall", f"same of {result['runs']}", "apart", "gave up"]
    for name in headings:
        table.add_column(name, justify="right")
    for row in rows:
        times = [f"{us:.0f}" for us in (*row["step_us"].values(), row["wall_us"])]
        right = [str(row["same"]), f"{row['apart']:.1e}", "yes" if row["gave_up"] else ""]
        table.add_row(row["kernels"], str(row["dispatches"]), *times, *right)
    tables = [table]
    fastest = min(rows, key=lambda row: row["step_us"][first])
    for row in (rows[0], fastest) if with_kernels else ():
        table = Table("kernel", "times", "us each", title=row["kernels"])
        for kernel, count, us in row["profile"]:
            table.add_row(kernel, str(count), f"{us:.2f}")
        tables.append(table)
    return tables


def shapes_of(text: str) -> list[PersistentShape]:
    return [PersistentShape(*map(int, one.split("x"))) for one in text.split(",")]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--tried", type=shapes_of, default=list(DEFAULTS.persistent))
    parser.add_argument("--positions", type=lambda text: [*map(int, text.split(","))], default=[100, 511, 1000, 3000])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if options.shape:
            path = Path(folder) / "random.gguf"
            write(path, SHAPES[options.shape], *RANDOM_FORMATS.get(options.shape, ("Q4_K_M", "Q8_0")))
        if not path:
            from app.models.downloads import default_model_path

            path = default_model_path()
        result = asyncio.run(measure(path, options))
    write_figures(options, result)
    print_tables(*tables_of(result, options.kernels))
