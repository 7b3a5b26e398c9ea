"""What adapters at the head's input and scores of tokens cost, natively.

    python tests/bench/head.py [--backend wasm|webgpu] [--rounds N] [--tokens N] [--json FILE]

Kinds take turns in each round, and ratios are of a round's own times: other programs may run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.building.kernels import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.adapters.head import MAX_HEAD_RANK, MAX_NEIGHBOURS, HeadAdapter, NeighbourAdapter
from py_core.backends.base import Backend, TokenSequence
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.sampling import SamplingParams


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = await load_model(FileSource(default_model_path()), loader(options.backend), native_renderer())
    found = await measure(model.backend, options.rounds, options.prompt, options.tokens)
    model.close()
    if options.json:
        options.json.write_text(json.dumps({"backend": options.backend, "milliseconds": found}))
    table = Table("", "ms a token", "of plain", title=f"{options.backend}, medians of {options.rounds} rounds")
    for base, kinds in (("no adapter", ADAPTERS), ("read", ("read", "score"))):
        for kind in kinds:
            ratio = median(mine / plain for mine, plain in zip(found[kind], found[base], strict=True))
            table.add_row(kind, f"{median(found[kind]):.3f}", f"{ratio:.3f}")
    Console().print(table)


ADAPTERS = ("no adapter", "no adapter again", "rank 32", "64 neighbours, shut", "64 neighbours, open")


def loader(backend: str) -> BackendLoader:
    if backend == "wasm":
        return partial(load_wasm, WasmtimeHost(kernel_path()))
    from py_core.backends.webgpu.host_wgpu import WgpuHost

    return partial(load_webgpu, WgpuHost())


async def measure(backend: Backend, rounds: int, prompt: int, tokens: int) -> dict[str, list[float]]:
    """Milliseconds a token of each round, by what was done."""
    draw = np.random.default_rng(0)
    text = draw.integers(0, 40_000, prompt).tolist()
    sequence = backend.new_sequence()
    await backend.prefill(sequence, text)
    width = (await backend.hidden(sequence, ["final_norm"], prompt - 1))["final_norm"].shape[1]
    a = (0.01 * draw.standard_normal((MAX_HEAD_RANK, width))).astype(np.float32)
    states = draw.standard_normal((MAX_NEIGHBOURS, width)).astype(np.float32)
    near = NeighbourAdapter(states, draw.integers(0, 40_000, MAX_NEIGHBOURS), tau=1)
    adapters = [None, None, HeadAdapter(a, a.T.copy()), near, NeighbourAdapter(states, near.tokens, tau=-1)]
    numbers = [await backend.put_head_adapter(one) if one else 0 for one in adapters]
    found: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        kinds = list(zip(ADAPTERS, numbers, strict=True))
        taken = {}
        for name, number in kinds if turn % 2 else kinds[::-1]:
            backend.use_head_adapter(sequence, number)
            taken[name] = await decoded(backend, sequence, prompt, tokens)
        backend.use_head_adapter(sequence, 0)
        backend.truncate(sequence, 0)
        start = time.perf_counter()
        await backend.prefill(sequence, text)
        taken["read"] = (time.perf_counter() - start) / prompt
        start = time.perf_counter()
        await backend.token_logprobs(sequence, 1)
        taken["score"] = (time.perf_counter() - start) / (prompt - 1)
        if turn:  # in the first turn code is compiled that runs often
            for name, seconds in taken.items():
                found.setdefault(name, []).append(1000 * seconds)
    return found


async def decoded(backend: Backend, sequence: TokenSequence, prompt: int, tokens: int) -> float:
    """Seconds a token."""
    backend.truncate(sequence, prompt)
    async for _ in backend.decode(sequence, 2, SamplingParams()):
        pass
    start = time.perf_counter()
    async for _ in backend.decode(sequence, tokens, SamplingParams()):
        pass
    return (time.perf_counter() - start) / tokens


if __name__ == "__main__":
    asyncio.run(main())
