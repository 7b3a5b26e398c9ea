"""The cost of a pass over masks beside that of a token written from left to right, with the weights of one model.

    python -m tests.bench diffusion_passes [--backend wasm|webgpu] [--precision precise|fast] [--model FILE]
        [--places 8,16,32] [--prompt 120] [--rounds 5] [--json FILE]

Natively, medians of interleaved rounds. The model is opened twice, the second time as if it wrote by diffusion: what it
writes is nonsense, but its passes cost what those of a converted model cost. "tokens" is how many masks a pass has to
turn into tokens to be as fast as steps from left to right.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.table import Table

from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.protocols import Backend
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, Model, load_model
from py_core.models.diffusion import Diffusion
from py_core.sampling import SamplingParams
from tests.bench.engine.parallel_sequences import drawn, loader_of
from tests.bench.reporting import options_of, print_tables, write_figures

MASK, STEPS = 0, 16
GREEDY = SamplingParams()


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--places", default="8,16,32")
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = asyncio.run(measured(options))
    table = Table("", "ms", "tokens", title=f"{found['model']}; {found['adapter']}; prompt of {options.prompt}")
    table.add_row("a token from left to right", f"{1000 * found['step']:.2f}", "1")
    for places, seconds in found["passes"].items():
        table.add_row(f"a pass over {places} masks", f"{1000 * seconds:.2f}", f"{seconds / found['step']:.1f}")
    print_tables(table)
    write_figures(options, found)


async def measured(options: argparse.Namespace) -> dict[str, object]:
    plain = await _opened(options, None)
    counts = [int(one) for one in options.places.split(",")]
    others = {count: await _opened(options, Diffusion(MASK, count, False)) for count in counts}
    steps, passes = list[float](), {count: list[float]() for count in counts}
    for number in range(options.rounds + 1):
        steps.append(await _steps(plain.backend, options.prompt))
        for count, model in others.items():
            passes[count].append(await _pass(model.backend, options.prompt // count * count, count))
        if not number:  # the first round compiles and measures shapes
            steps.clear()
            for times in passes.values():
                times.clear()
    return {
        "model": plain.config.name,
        "adapter": plain.backend.capabilities.adapter,
        "step": median(steps),
        "passes": {count: median(times) for count, times in passes.items()},
    }


async def _opened(options: argparse.Namespace, diffusion: Diffusion | None) -> Model:
    load = loader_of(options.backend, options.precision)

    def as_diffusion(source, header, config, graph, progress) -> Awaitable[Backend]:  # type: ignore[no-untyped-def]
        return load(source, header, replace(config, diffusion=diffusion), graph, progress)

    loader: BackendLoader = as_diffusion
    source = FileSource(options.model or default_model_path())
    return await load_model(source, loader, native_renderer(), context=1024)


async def _steps(backend: Backend, prompt: int) -> float:
    """Return the seconds of a token."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, drawn(prompt, seed=1))

    async def steps() -> None:
        async for _ in backend.decode(sequence, STEPS, GREEDY):
            pass

    taken = await _timed(steps)
    backend.free(sequence)
    return taken / STEPS


async def _pass(backend: Backend, prompt: int, places: int) -> float:
    """Return the seconds of a pass over a block of masks behind whole blocks."""
    sequence = backend.new_sequence()
    await backend.prefill(sequence, drawn(prompt, seed=1))
    canvas = [MASK] * places
    await backend.denoise(sequence, canvas, GREEDY)

    async def one() -> None:
        await backend.denoise(sequence, canvas, GREEDY)

    taken = await _timed(one)
    backend.free(sequence)
    return taken


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    begin = time.perf_counter()
    await work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
