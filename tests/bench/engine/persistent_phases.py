"""The cost of a phase of a kernel that stays, beside that of a dispatch, for a chain of 120 products as SmolLM2's.

    python -m tests.bench persistent_phases [--runs 200] [--lanes 32] [--json FILE]

The products are persistent.wgsl's: as one dispatch, whose workgroups wait for each other, and as one a phase, for each
number and size of workgroups. "same": the results of all runs of one dispatch are those of many, bit by bit. "gave
up": the runs that ended early, since not all workgroups ran side by side, and the longest of them. Natively, by
wgpu-py; in a browser persistent.html of gpu_browser.py does the same. Times are the GPU's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from tests.bench.reporting import options_of, print_tables, write_figures

os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
SHADER = Path(__file__).parents[1] / "gpu_page" / "persistent.wgsl"
PHASES, MOST, WORDS = 120, 1536, 30 * 442368
SIZES = [(groups, threads) for threads in (128, 256, 512) for groups in (33, 66, 132, 264)]
TOO_MANY = (8192, 256)
"""More workgroups than any GPU runs side by side: they give up."""
SPINS = 20_000


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lanes", type=int, default=32, help="of a subgroup; lavapipe has 8")
    options = parser.parse_args()
    found = measured(options.runs, options.lanes)
    print_tables(table_of(found))
    write_figures(options, found)


def table_of(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['adapter']}: microseconds a phase")
    for name in (
        "workgroups",
        "threads",
        "one dispatch",
        "worst run",
        "a dispatch each",
        "same",
        "gave up",
        "longest, us",
    ):
        table.add_column(name, justify="right")
    for one in found["sizes"]:
        times = [f"{one[key] / PHASES:.2f}" for key in ("persistent_us", "worst_us", "dispatches_us")]
        gave_up = [str(one["gave_up"]), f"{one['longest_us']:.0f}" if one["gave_up"] else ""]
        table.add_row(str(one["groups"]), str(one["threads"]), *times, str(one["same"]), *gave_up)
    return table


def measured(runs: int, lanes: int) -> dict[str, Any]:
    import wgpu  # here, so that gpu_browser.py can draw the table without it

    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    limits = {name: adapter.limits[name] for name in ("max-storage-buffer-binding-size", "max-buffer-size")}
    device = adapter.request_device_sync(required_features=["timestamp-query", "subgroup"], required_limits=limits)
    usage, draw = wgpu.BufferUsage, np.random.default_rng(0)
    weights = device.create_buffer_with_data(data=draw.integers(0, 2**32, WORDS, np.uint32), usage=usage.STORAGE)
    first = np.full(4 * MOST, 3, np.uint32)  # the places of other kinds: of no block that is next
    first[:MOST] = draw.standard_normal(MOST, np.float32).view(np.uint32) & 0xFFFFFFFC
    both = usage.STORAGE | usage.COPY_DST | usage.COPY_SRC
    handed, gave_up = device.create_buffer(size=first.nbytes, usage=both), device.create_buffer(size=16, usage=both)
    parts = np.zeros((PHASES + 1, 64), np.uint32)
    parts[:PHASES, 0], parts[:PHASES, 1] = np.arange(PHASES), np.arange(PHASES) + 1
    parts[PHASES, 1] = PHASES  # all of them
    part = device.create_buffer_with_data(data=parts, usage=usage.UNIFORM)
    queries = device.create_query_set(type="timestamp", count=2)
    times = device.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)

    def compiled(groups: int, threads: int) -> tuple[Any, list[Any]]:
        """The last bind group is that of all phases, the others have one each."""
        constants = {"THREADS": threads, "GROUPS": groups, "SPINS": SPINS, "LANES": lanes}
        code = "".join(f"const {name} = {value}u;\n" for name, value in constants.items()) + SHADER.read_text()
        module = device.create_shader_module(code=code)
        pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        buffers = [(weights, 0, weights.size), (handed, 0, handed.size), (gave_up, 0, 16)]
        groups_of = [
            device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=[
                {"binding": at, "resource": {"buffer": buffer, "offset": offset, "size": size}}
                for at, (buffer, offset, size) in enumerate([*buffers, (part, 256 * number, 16)])
            ])
            for number in range(PHASES + 1)
        ]  # fmt: skip
        return pipeline, groups_of

    def run(pipeline: Any, binds: list[Any], groups: int) -> tuple[float, int, bytes]:
        device.queue.write_buffer(handed, 0, first)
        device.queue.write_buffer(gave_up, 0, np.zeros(4, np.uint32))
        encoder = device.create_command_encoder()
        stamps = {"query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
        commands = encoder.begin_compute_pass(timestamp_writes=stamps)
        commands.set_pipeline(pipeline)
        for bind in binds:
            commands.set_bind_group(0, bind)
            commands.dispatch_workgroups(groups)
        commands.end()
        encoder.resolve_query_set(queries, 0, 2, times, 0)
        device.queue.submit([encoder.finish()])
        begun, ended = np.frombuffer(device.queue.read_buffer(times), np.uint64).tolist()
        phase = int(np.frombuffer(device.queue.read_buffer(gave_up), np.uint32)[0])
        return (ended - begun) / 1000, phase, bytes(device.queue.read_buffer(handed, 0, 4 * 576))

    sizes = [of_size(groups, threads, runs, compiled, run) for groups, threads in SIZES]
    sizes.append(of_size(*TOO_MANY, min(runs, 5), compiled, run))
    return {"adapter": adapter.info["device"], "sizes": sizes}


def of_size(
    groups: int, threads: int, runs: int, compiled: Callable[..., Any], run: Callable[..., tuple[float, int, bytes]]
) -> dict[str, Any]:
    pipeline, binds = compiled(groups, threads)
    expected = [run(pipeline, binds[:-1], groups) for _ in range(max(3, runs // 10))]
    found = [run(pipeline, binds[-1:], groups) for _ in range(runs)]
    whole = [taken for taken, phase, _ in found if not phase] or [0.0]
    early = [taken for taken, phase, _ in found if phase]
    same = all(data == expected[0][2] for _, phase, data in found if not phase)
    return {
        "groups": groups, "threads": threads, "persistent_us": median(whole), "worst_us": max(whole),
        "dispatches_us": median(taken for taken, _, _ in expected), "gave_up": len(early),
        "longest_us": max(early, default=0.0), "same": same,
    }  # fmt: skip


if __name__ == "__main__":
    main()
