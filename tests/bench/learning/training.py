"""The speed of training SmolLM2: a step of 4 sequences of 100 tokens, rank 8 on all linears.

    python -m tests.bench training --backend numpy|wasm|webgpu [--where native|browser] [--rounds 5] [--workers 2]
        [--precision precise|fast] [--divergence 1] [--rank 8] [--wait S] [--preferred] [--json FILE]
    python -m tests.bench training site OUT                   the site with the page, for a machine with a GPU
    python -m tests.bench training table RESULT.json ...      the table of what the page sent to /result

The page is gpu_page/training.html?backend=webgpu&model=URL. Half of the tokens have a loss. Forward is the base's
forward pass alone, backward the rest of a pass: the loss, the gradients, and computing blocks again. The longest piece
is the longest wait of a chat. Memory over the model: buffers of the GPU or growth of the kernels' memory, and of
the process, which natively has the former, too (wasm, and a GPU in software); in the page of Pyodide's heap.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Route
from rich.table import Table

from app.building.common import ROOT
from app.building.kernels import kernel_path
from app.building.site.dist import DIST
from app.models.downloads import default_model_path, model_files
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from tests.bench.in_browser import chromium, evaluate, local_server, machine, preferred, wait_for_quiet
from tests.bench.learning.training_measure import DEFAULTS, load_and_measure
from tests.bench.reporting import options_of, print_tables, write_figures

HERE = Path(__file__).parent
PAGES = HERE.parent / "gpu_page"
FILES = [PAGES / "training.html", PAGES / "training_worker.js", HERE / "training_measure.py"]
TYPES = {".html": "text/html", ".js": "text/javascript", ".py": "text/plain"}
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip
WAIT = """async () => {
    while (!globalThis.result) await new Promise((resolve) => setTimeout(resolve, 200));
    return globalThis.result;
}"""


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def native(options: argparse.Namespace) -> dict[str, Any]:
    host: Any = None
    load: BackendLoader = load_numpy
    if options.backend == "wasm":
        host = WasmtimeHost(kernel_path())
        load = partial(load_wasm, host, precision=options.precision)
    elif options.backend == "webgpu":
        host = WgpuHost()
        load = partial(load_webgpu, host)
    numbers = {key: getattr(options, key) for key in DEFAULTS}
    return asyncio.run(load_and_measure(load, host, FileSource(default_model_path()), peak_bytes, numbers))


def in_browser(options: argparse.Namespace) -> dict[str, Any]:
    query = {key: getattr(options, key) for key in (*DEFAULTS, "backend", "workers", "precision")}
    with local_server() as address, chromium() as browser:
        page = browser.new_page(bypass_csp=True)

        def given(file: Path) -> Callable[[Route], None]:
            return lambda route: route.fulfill(
                body=file.read_text(encoding="utf-8"), content_type=TYPES[file.suffix], headers=ISOLATED
            )

        for file in FILES:
            page.route(re.compile(rf"/{re.escape(file.name)}\b"), given(file))
        page.route(f"{address}/result", lambda route: route.fulfill(status=204))
        words = "&".join(f"{key}={value}" for key, value in query.items())
        page.goto(f"{address}/training.html?model=/models/{model_files()[0].file}&{words}")
        return {**evaluate(page, WAIT), "machine": machine(browser)}


def lay_out(folder: Path) -> None:
    """The built site, without models, and the page."""
    subprocess.run([sys.executable, "build.py", "site"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(DIST, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.gguf"))
    for file in FILES:
        shutil.copyfile(file, folder / file.name)


def table_of(results: list[dict[str, Any]]) -> Table:
    table = Table(title="Training; tok/s: rows of a step's passes over its time; over the model: device, host")
    for name in ("backend", "tok/s", "forward", "backward", "optimizer", "longest piece", "over the model"):
        table.add_column(name, justify="right")
    for one in results:
        if "error" in one:
            table.add_row(one["error"])
            continue
        shares = (f"{one[f'{name}_share']:.0%}" for name in ("forward", "backward", "optimizer"))
        memory = ", ".join(f"{one[f'{where}_bytes_over_model'] / 1e6:.0f} MB" for where in ("device", "host"))
        name = f"{one['backend']}, {one['adapter']}"
        table.add_row(name, f"{one['trained_tok_s']:.0f}", *shares, f"{one['longest_piece_ms']:.0f} ms", memory)
    return table


def main() -> None:
    assert __doc__
    if sys.argv[1:2] == ["site"]:
        lay_out(Path(sys.argv[2]))
        return
    if sys.argv[1:2] == ["table"]:
        print_tables(table_of([json.loads(Path(name).read_text()) for name in sys.argv[2:]]))
        return
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=["numpy", "wasm", "webgpu"], required=True)
    parser.add_argument("--where", choices=["native", "browser"], default="native")
    parser.add_argument("--workers", type=int, default=2, help="of the wasm backend in the browser")
    parser.add_argument("--precision", choices=["precise", "fast"], default="precise", help="of the wasm backend")
    for key, default in DEFAULTS.items():
        parser.add_argument(f"--{key}", type=int, default=default)
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so long for other programs to be quiet"
    )
    parser.add_argument("--preferred", action="store_true", help="get the cores before other programs (Linux, as root)")
    options = parser.parse_args()
    with preferred() if options.preferred else contextlib.nullcontext():
        wait_for_quiet(options.wait)
        result = native(options) if options.where == "native" else in_browser(options)
    write_figures(options, result)
    print_tables(table_of([result]))
