"""The cost of a pass over masks beside that of a token written from left to right, with the weights of one model.

    python -m tests.bench diffusion_passes [--backend wasm|webgpu] [--precision precise|fast] [--model FILE]
        [--places 8,16,32] [--prompt 120] [--rounds 5] [--json FILE]

Medians of interleaved rounds. The model is opened several times, as if it wrote by diffusion in blocks of 8, 16 and 32:
what it writes is nonsense, but its passes cost what those of a converted model cost. "tokens" is how many masks a pass
has to turn into tokens to be as fast as steps from left to right. This is native; on a GPU in a browser, diffusion.html
of gpu_browser.py does the same, and compares what tiny models write with numpy's answers.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from app.models.downloads import default_model_path
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.protocols import Backend
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader
from py_core.models.diffusion import Diffusion
from py_core.models.registry import describe_model
from tests.bench.engine.diffusion_measure import MASK, measure, written
from tests.bench.engine.parallel_sequences import loader_of
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.diffusion.tiny import write_diffusion

TINY_BLOCKS = (8, 32, 0)
TINY_ANSWER = 45
MEASURE_IN_PAGE = """
import json
from dataclasses import replace
from js import Uint8Array, fetch
from py_core.backends.browser_source import BrowserSource
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.formats.gguf import read_header
from py_core.models.registry import describe_model

async def opened(data, tuning, diffusion):
    source = BrowserSource(await devices.stream(data.slice()))  # which takes the bytes
    header = await read_header(source)
    config, graph = describe_model(header)
    host = BrowserHost(await devices.executor())
    config = replace(config, diffusion=diffusion or config.diffusion)
    return config, await load_webgpu(host, source, header, config, graph, None, tuning)

async def measure_in_page(model, tiny, count, *options):
    data, tuning = Uint8Array.new(await (await fetch(model)).arrayBuffer()), Tuning()

    async def as_diffusion(diffusion):
        return (await opened(data, tuning, diffusion))[1]

    found, answers = await measure(as_diffusion, *options), {}
    for name in tiny:
        config, backend = await opened(Uint8Array.new(await (await fetch(name)).arrayBuffer()), Tuning(), None)
        answers[name] = await written(backend, config.diffusion, count)
        backend.close()
    return json.dumps({**found, "answers": answers})

await measure_in_page(*json.loads('ARGUMENTS'))
"""


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--places", default="8,16,32")
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    path = options.model or default_model_path()
    found = asyncio.run(measured(path, options))
    print_tables(table_of({"model": path.stem, **found}))
    write_figures(options, found)


def table_of(found: Mapping[str, Any]) -> Table:
    table = Table("", "ms", "tokens", title=f"{found['model']}; {found['adapter']}")
    table.add_row("a token from left to right", f"{1000 * found['step']:.2f}", "1")
    for places, seconds in found["passes"].items():
        table.add_row(f"a pass over {places} masks", f"{1000 * seconds:.2f}", f"{seconds / found['step']:.1f}")
    return table


async def measured(path: Path, options: argparse.Namespace) -> dict[str, object]:
    load = loader_of(options.backend, options.precision)
    places = [int(one) for one in options.places.split(",")]
    return await measure(partial(_opened, path, load), places, options.prompt, options.rounds)


async def _opened(path: Path, load: BackendLoader, diffusion: Diffusion | None) -> Backend:
    source = FileSource(path)
    header = await read_header(source)
    config, graph = describe_model(header)
    return await load(source, header, replace(config, diffusion=diffusion), graph, None)


async def lay_out_tiny(folder: Path) -> dict[str, list[list[int]]]:
    """Write tiny models of diffusion to a folder, and return what numpy writes with each, by its file's name."""
    answers = {}
    for block in TINY_BLOCKS:
        path, how = write_diffusion(folder / f"tiny_{block}.gguf", block), Diffusion(MASK, block, False)
        answers[path.name] = await written(await _opened(path, load_numpy, how), how, TINY_ANSWER)
    return answers


if __name__ == "__main__":
    main()
