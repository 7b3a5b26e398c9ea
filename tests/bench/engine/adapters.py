"""The cost of a set of LoRA matrices on every linear: decode and prefill with and without one, and exchanging it.

    python -m tests.bench adapters [--engine page-wasm-2] [--rank 8] [--rounds 15] [--json FILE]

Engines: wasm, numpy and webgpu run natively; page-wasm-1, page-wasm-2 (1 or 2 workers) and page-webgpu in headless
Chromium, in the page's Python. The numbers of the set are drawn from a seed. Each round reads the same prompt and
decodes the same number of tokens greedily with and without the set, in turns; then it runs a pass over a single token
with the set of the pass before, and with another set. Figures are medians over the rounds; "time x" is the median of
each round's ratio, with the set to without.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser
from rich.table import Table

from app.building.kernels import kernel_path
from app.models.downloads import default_model_path, model_files
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.registry import describe_model
from tests.bench.engine.adapters_measure import Milliseconds, Tuning, measure
from tests.bench.in_browser import chromium, local_server, machine, preferred, python_page, run_python, wait_for_quiet
from tests.bench.reporting import options_of, print_tables, write_figures

NATIVE, IN_PAGE = ("wasm", "numpy", "webgpu"), ("page-wasm-1", "page-wasm-2", "page-webgpu")
DEFAULT = ("wasm", "page-wasm-1", "page-wasm-2")
MEASURE_IN_PAGE = """
import json
from js import Uint8Array, fetch
from py_core.backends.browser_source import BrowserSource
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.formats.gguf import read_header
from py_core.models.registry import describe_model

async def measure_in_page(address, workers, precision, *options):
    data = Uint8Array.new(await (await fetch(address)).arrayBuffer())
    source = BrowserSource(await devices.stream(data))
    header = await read_header(source)
    config, graph = describe_model(header)
    if workers:
        pool = await devices.pool()
        await pool.setWorkers(workers)
        backend = await load_wasm(BrowserKernelHost(pool), source, header, config, graph, None, precision)
    else:
        host = BrowserHost(await devices.executor())
        backend = await load_webgpu(host, source, header, config, graph, None, Tuning())
    found = await measure(backend, graph, config.vocab_size, *options)
    backend.close()
    return json.dumps([backend.capabilities.adapter, found])

await measure_in_page(*json.loads('ARGUMENTS'))
"""


def main() -> None:
    assert __doc__
    parser = options_of(__doc__)
    parser.add_argument("--engine", action="append", choices=NATIVE + IN_PAGE, help=f"default: {', '.join(DEFAULT)}")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--prompt", type=int, default=128, help="tokens to read")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to decode")
    parser.add_argument("--precision", choices=["precise", "fast"], default="precise", help="of wasm")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so long for other programs to be quiet"
    )
    parser.add_argument("--preferred", action="store_true", help="get the cores before other programs (Linux, as root)")
    options = parser.parse_args()
    counts = (options.rank, options.rounds, options.prompt, options.tokens)
    engines = options.engine or list(DEFAULT)
    result: dict[str, Any] = {"rank": options.rank, "prompt": options.prompt, "tokens": options.tokens, "engines": {}}

    def note(name: str, device: str, found: Milliseconds) -> None:
        load = os.getloadavg()[0]
        summary = summary_of(found, options.prompt, options.tokens)
        result["engines"][name] = {"device": device, "load_average": load, **summary, "milliseconds": found}
        print(f"{name}: { ({key: round(value, 3) for key, value in summary.items()}) }", file=sys.stderr)

    before_others = preferred if options.preferred else contextlib.nullcontext
    for name in (name for name in engines if name in NATIVE):
        wait_for_quiet(options.wait)
        with before_others():
            note(name, *asyncio.run(natively(name, options.precision, counts)))
    if pages := [name for name in engines if name in IN_PAGE]:
        with local_server() as address, before_others(), chromium() as browser:
            result["machine"] = machine(browser)
            for name in pages:
                wait_for_quiet(options.wait)
                note(name, *in_page(browser, address, name, options.precision, counts))
    write_figures(options, result)
    show(result)


async def natively(name: str, precision: str, counts: tuple[int, ...]) -> tuple[str, Milliseconds]:
    load: BackendLoader = load_numpy
    if name == "wasm":
        load = partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision)
    if name == "webgpu":
        load = partial(load_webgpu, WgpuHost(), tuning=Tuning())
    source = FileSource(default_model_path())
    header = await read_header(source)
    config, graph = describe_model(header)
    backend = await load(source, header, config, graph, None)
    try:
        return backend.capabilities.adapter, await measure(backend, graph, config.vocab_size, *counts)
    finally:
        backend.close()


def in_page(
    browser: Browser, address: str, name: str, precision: str, counts: tuple[int, ...]
) -> tuple[str, Milliseconds]:
    workers = 0 if name == "page-webgpu" else int(name[-1])
    arguments = [f"{address}/models/{model_files()[0].file}", workers, precision, *counts]
    with python_page(browser, address, Path(__file__).with_name("adapters_measure.py")) as page:
        name, found = json.loads(run_python(page, MEASURE_IN_PAGE.replace("ARGUMENTS", json.dumps(arguments))))
    return name, found


def summary_of(found: Milliseconds, prompt: int, tokens: int) -> dict[str, float]:
    """Medians, and of decode and prefill the median of the ratios of times."""
    summary = {}
    for name, count in (("decode", tokens), ("prefill", prompt)):
        plain, adapted = found[f"{name} plain"], found[f"{name} adapted"]
        summary[f"{name}_tok_s"] = count / median(plain) * 1000
        summary[f"{name}_adapted_tok_s"] = count / median(adapted) * 1000
        summary[f"{name}_time_ratio"] = median(a / b for a, b in zip(adapted, plain, strict=True))
    return summary | {f"{name}_ms": median(found[name]) for name in ("add", "same", "swap")}


def show(result: dict[str, Any]) -> None:
    table = Table(title=f"rank {result['rank']} on every linear; {result['prompt']} tokens read, tok/s, ms")
    table.add_column("engine", no_wrap=True)
    for heading in ("decode", "with", "time x", "prefill", "with", "time x", "add", "pass", "after a swap", "busy"):
        table.add_column(heading, justify="right")
    for name, figures in result["engines"].items():
        cells = []
        for what in ("decode", "prefill"):
            cells += [f"{figures[f'{what}_tok_s']:.0f}", f"{figures[f'{what}_adapted_tok_s']:.0f}"]
            cells.append(f"{figures[f'{what}_time_ratio']:.3f}")
        cells += [f"{figures['add_ms']:.0f}", f"{figures['same_ms']:.1f}", f"{figures['swap_ms']:.1f}"]
        table.add_row(name, *cells, f"{figures['load_average']:.1f}")
    print_tables(table)
