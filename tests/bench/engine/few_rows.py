"""The cost of a pass of several rows beside a pass of a single row: milliseconds by rows, medians.

    python -m tests.bench few_rows [--backend wasm|webgpu] [--model FILE | --shape qwen2.5-3b] [--rows 1,2,4,8,16,64]
        [--position 512] [--rounds 15] [--precision precise|fast] [--kernels] [--json FILE]

Of "last" only the last row gets logits, as in a prefill; of "all" up to 8 do, as when guessed tokens are checked. On
WebGPU (wgpu-py) it is the GPU's own time of the pass, and --kernels prints that of each kernel (microseconds by name);
on WASM (wasmtime) the time of a call, in turns. Without --model the usual model runs, with --shape one of that shape
with random weights (random_gguf.py).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from app.models.template_renderer import native_renderer
from py_core.backends.checks import MAX_LOGIT_ROWS
from py_core.backends.protocols import Backend
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.engine.scheduler import Priority
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.token_sequence import TokenSequence
from tests.bench.engine.random_gguf import RANDOM_FORMATS, SHAPES, write
from tests.bench.reporting import options_of, print_tables, write_figures


def loader_of(backend: str, precision: str) -> BackendLoader:
    if backend == "webgpu":
        from app.models.autotune_cache import AutotuneCache
        from py_core.backends.webgpu.backend import load_webgpu
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        return partial(load_webgpu, WgpuHost(), tuning=AutotuneCache())
    from app.models.build_outputs import kernel_path
    from py_core.backends.wasm.backend import load_wasm
    from py_core.backends.wasm.host_wasmtime import WasmtimeHost

    return partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision)


def drawn(count: int, vocabulary: int) -> list[int]:
    return np.random.default_rng(0).integers(3, vocabulary, count).tolist()


async def call_ms(backend: Backend, sequence: TokenSequence, tokens: list[int], logit_rows: int) -> float:
    """Return the time of a pass over the sequence's last token and `tokens`. The sequence is left as it was."""
    length = sequence.length
    backend.truncate(sequence, length)  # the last token runs again
    if tokens:
        backend.append(sequence, tokens)
    begin = time.perf_counter()
    await backend.last_logits(sequence, logit_rows)
    taken = time.perf_counter() - begin
    backend.truncate(sequence, length)
    return 1000 * taken


async def by_calls(model: Model, rows: list[int], position: int, rounds: int) -> list[dict[str, Any]]:
    backend = model.engine.backend
    tokens = drawn(position + max(rows), model.config.vocab_size)
    sequence = backend.new_sequence()
    await backend.prefill(sequence, tokens[:position])
    passes = list(dict.fromkeys((m, logits) for m in rows for logits in (1, min(m, MAX_LOGIT_ROWS))))
    taken: dict[tuple[int, int], list[float]] = {one: [] for one in passes}
    for turn in range(rounds + 1):
        for m, logit_rows in passes:
            ms = await call_ms(backend, sequence, tokens[position : position + m - 1], logit_rows)
            if turn:
                taken[m, logit_rows].append(ms)
    return [
        {"rows": m, "last_ms": median(taken[m, 1]), "all_ms": median(taken[m, min(m, MAX_LOGIT_ROWS)])} for m in rows
    ]


async def by_kernels(backend: WebGPUBackend, rows: list[int], position: int) -> list[dict[str, Any]]:
    found = []
    for m in rows:
        last = await backend.profile(position, m)
        every = await backend.profile(position, m, logit_rows=min(m, MAX_LOGIT_ROWS)) if m > 1 else last
        kernels = {one.name: {"count": one.count, "us": 1e6 * one.seconds} for one in every.kernels}
        found.append(
            {"rows": m, "last_ms": 1000 * last.gpu_seconds, "all_ms": 1000 * every.gpu_seconds, "kernels": kernels}
        )
    return found


async def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    loader = loader_of(options.backend, options.precision)
    model = await load_model(FileSource(path), loader, native_renderer())
    await model.engine.tune(Priority.INTERACTIVE)
    rows = [int(m) for m in options.rows.split(",")]
    backend = model.engine.backend
    if isinstance(backend, WebGPUBackend):
        found = await by_kernels(backend, rows, options.position)
    else:
        found = await by_calls(model, rows, options.position, options.rounds)
    adapter, name = model.engine.capabilities.adapter, options.shape or model.config.name
    model.close()
    return {
        "model": name, "backend": options.backend, "adapter": adapter, "position": options.position, "passes": found,
    }  # fmt: skip


def tables(found: dict[str, Any], kernels: bool) -> list[Table]:
    title = f"{found['model']} on {found['adapter'] or found['backend']}, position {found['position']}"
    table, first = Table(title=title), found["passes"][0]
    for column in ("rows", "last, ms", "times one", "all, ms", "times one"):
        table.add_column(column, justify="right")
    for one in found["passes"]:
        times = [f"{one[key]:.3f} {one[key] / first[key]:.2f}".split() for key in ("last_ms", "all_ms")]
        table.add_row(str(one["rows"]), *times[0], *times[1])
    made = [table]
    if kernels and "kernels" in first:
        by_name = Table(title="kernels, us (all of a name)")
        by_name.add_column("kernel")
        for one in found["passes"]:
            by_name.add_column(f"{one['rows']}", justify="right")
        for name in dict.fromkeys(name for one in found["passes"] for name in one["kernels"]):
            taken = [one["kernels"].get(name) for one in found["passes"]]
            by_name.add_row(name, *(f"{kernel['us']:,.0f}" if kernel else "" for kernel in taken))
        made.append(by_name)
    return made


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--rows", default="1,2,4,8,16,64")
    parser.add_argument("--position", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if options.shape:
            path = Path(folder, "model.gguf")
            write(path, SHAPES[options.shape], *RANDOM_FORMATS.get(options.shape, ("Q4_K_M", "")))
        if not path:
            from app.models.downloads import default_model_path

            path = default_model_path()
        found = asyncio.run(measure(path, options))
    write_figures(options, found)
    print_tables(*tables(found, options.kernels))
