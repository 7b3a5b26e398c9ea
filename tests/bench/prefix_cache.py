"""What a second question costs that begins with 2,000 tokens which another conversation has read; and a look-up.

    python tests/bench/prefix_cache.py [--backend wasm|webgpu] [--tokens 2000] [--rounds 5] [--json]

Milliseconds until the first token of the answer, natively (wasmtime or wgpu-py), with SmolLM2-135M: "read" is one
that shares nothing, "shared" one that begins with the pages of the first; in turns, medians. A question has 20 tokens.
A look-up is of a text of as many tokens in a tree of 10,000 pages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from functools import partial
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from app.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.paging.page_table import PAGE
from py_core.paging.radix_tree import RadixTree
from py_core.sampling import SamplingParams

QUESTION = 20
PAGES = 10_000


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(1000, 40_000, count).tolist()


async def first_token_ms(engine: Engine, tokens: list[int], shares: bool) -> float:
    sequence, timings = engine.new_sequence(shares), Timings()
    begin = time.perf_counter()
    try:
        await engine.prefill(sequence, tokens, timings)
        async for _ in engine.generate(sequence, 1, SamplingParams(), timings, ignore_end=True):
            pass
        return 1000 * (time.perf_counter() - begin)
    finally:
        engine.free(sequence)


async def measure(loader: BackendLoader, tokens: int, rounds: int) -> dict[str, float]:
    model = await load_model(FileSource(default_model_path()), loader, native_renderer())
    beginning = drawn(tokens, seed=0)
    await first_token_ms(model.engine, beginning + drawn(QUESTION, seed=1), True)
    found: dict[str, list[float]] = {"read": [], "shared": []}
    for turn in range(rounds):
        asked = beginning + drawn(QUESTION, seed=2 + turn)
        for name in ("read", "shared") if turn % 2 else ("shared", "read"):
            found[name].append(await first_token_ms(model.engine, asked, name == "shared"))
    model.close()
    return {f"{name}_ms": median(times) for name, times in found.items()}


def look_up_ms(tokens: int, rounds: int) -> float:
    tree = RadixTree()
    texts = [drawn(tokens, seed) for seed in range(PAGES * PAGE // tokens + 1)]
    for number, text in enumerate(texts):
        tree.insert(0, text, list(range(number * tokens // PAGE, (number + 1) * tokens // PAGE)))
    times = []
    for turn in range(100 * rounds):
        text = list(texts[turn % len(texts)])
        begin = time.perf_counter()
        tree.match(0, text)
        times.append(1000 * (time.perf_counter() - begin))
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    loader: BackendLoader = partial(load_wasm, WasmtimeHost(kernel_path()))
    if options.backend == "webgpu":
        loader = partial(load_webgpu, WgpuHost())
    found = asyncio.run(measure(loader, options.tokens, options.rounds))
    found |= {"times": found["read_ms"] / found["shared_ms"], "look_up_ms": look_up_ms(options.tokens, options.rounds)}
    if options.json:
        print(json.dumps({"backend": options.backend, "tokens": options.tokens} | found, indent=1))
        return
    table = Table(title=f"{options.tokens:,} tokens that were read before, {options.backend}")
    for column in ("first token, all read, ms", "shared, ms", "times as fast", "look-up, ms"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{found['read_ms']:,.0f}", f"{found['shared_ms']:,.0f}", f"{found['times']:.1f}", f"{found['look_up_ms']:.3f}"
    )
    Console().print(table)


if __name__ == "__main__":
    main()
