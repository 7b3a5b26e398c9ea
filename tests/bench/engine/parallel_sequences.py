"""Conversations that are answered at once: tokens a second together, and the wait of one more for its first token.

    python -m tests.bench parallel_sequences [--backend wasm|webgpu] [--precision precise|fast] [--model FILE]
        [--conversations 1,2,4,8] [--prompt 120] [--tokens 128] [--rounds 3] [--json FILE]

Natively (wasmtime on one core, or wgpu-py), medians. All have read their prompts when the answers begin; these are
greedy and have `tokens` tokens each. "rows" is how many of them shared a step in the end. "waits" is the time until the
first token of one more, whose prompt is read while the others are answered, less that time with nobody else.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from rich.table import Table

from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.engine.engine import Engine, Timings
from py_core.engine.scheduler import Priority
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.bench.reporting import options_of, print_tables, write_figures

GREEDY = SamplingParams()


def loader_of(backend: str, precision: str = "precise") -> BackendLoader:
    if backend == "webgpu":
        from app.models.autotune_cache import AutotuneCache
        from py_core.backends.webgpu.backend import load_webgpu
        from py_core.backends.webgpu.host_wgpu import WgpuHost

        return partial(load_webgpu, WgpuHost(), tuning=AutotuneCache())
    from py_core.backends.wasm.backend import load_wasm
    from py_core.backends.wasm.host_wasmtime import WasmtimeHost

    return partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision)


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(1000, 40_000, count).tolist()


class Conversations:
    """`shares=False`: neither shared pages nor guesses speed a conversation up."""

    def __init__(self, engine: Engine, prompt: int, tokens: int) -> None:
        self._engine, self._prompt, self._tokens = engine, prompt, tokens

    async def read(self, seed: int) -> TokenSequence:
        sequence = self._engine.new_sequence(shares=False)
        await self._engine.prefill(sequence, drawn(self._prompt, seed), Timings())
        return sequence

    async def answer(self, sequence: TokenSequence, tokens: int, began: asyncio.Event | None = None) -> None:
        async for _ in self._engine.generate(sequence, tokens, GREEDY, Timings(), ignore_end=True):
            if began:
                began.set()

    async def together(self, count: int) -> float:
        """Return the tokens a second of `count` answers at once."""
        sequences = [await self.read(seed) for seed in range(count)]
        begin = time.perf_counter()
        await asyncio.gather(*(self.answer(one, self._tokens) for one in sequences))
        taken = time.perf_counter() - begin
        for one in sequences:
            self._engine.free(one)
        return count * self._tokens / taken

    async def first_token(self, others: int) -> float:
        """Return the seconds until the first token of one more answer, while `others` answers are generated."""
        sequences = [await self.read(seed) for seed in range(others)]
        began = [asyncio.Event() for _ in sequences]
        room = self._engine.context_length - self._prompt
        going = [
            asyncio.ensure_future(self.answer(*one, began=at))
            for *one, at in zip(sequences, [room] * others, began, strict=True)
        ]
        for at in began:
            await at.wait()
        await asyncio.sleep(0.2)  # they are in the middle
        begin = time.perf_counter()
        one_more = await self.read(others)
        await self.answer(one_more, 1)
        taken = time.perf_counter() - begin
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        for one in (*sequences, one_more):
            self._engine.free(one)
        return taken


async def measure(options: argparse.Namespace) -> dict[str, object]:
    path = options.model or default_model_path()
    model = await load_model(FileSource(path), loader_of(options.backend, options.precision), native_renderer())
    await model.engine.tune(Priority.INTERACTIVE)
    conversations = Conversations(model.engine, options.prompt, options.tokens)
    counts = [int(count) for count in options.conversations.split(",")]
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    first: dict[int, list[float]] = {count: [] for count in (0, *counts)}
    for turn in range(options.rounds + 1):  # the first one compiles
        for count in counts:
            speed = await conversations.together(count)
            if turn:
                speeds[count].append(speed)
        for count in (0, *counts):
            seconds = await conversations.first_token(count)
            if turn:
                first[count].append(seconds)
    rows = {count: model.engine.backend.rows_that_pay(count) for count in counts}
    alone, adapter = median(first[0]), model.engine.capabilities.adapter
    model.close()
    found = [
        {
            "conversations": count, "rows": rows[count], "tok_s": median(speeds[count]),
            "times_one": median(speeds[count]) / median(speeds[counts[0]]),
            "wait_ms": 1000 * (median(first[count]) - alone),
        }
        for count in counts
    ]  # fmt: skip
    return {"model": Path(path).name, "adapter": adapter, "first_token_alone_ms": 1000 * alone, "found": found}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--conversations", default="1,2,4,8")
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    write_figures(options, found)
    title = f"{found['adapter']}; the first token of one alone after {found['first_token_alone_ms']:,.0f} ms"
    table = Table(title=title)
    for column in ("conversations", "rows", "tok/s together", "times one", "one more waits, ms"):
        table.add_column(column, justify="right")
    for one in found["found"]:  # type: ignore[attr-defined]
        table.add_row(
            str(one["conversations"]),
            str(one["rows"]),
            f"{one['tok_s']:,.0f}",
            f"{one['times_one']:.2f}",
            f"{one['wait_ms']:,.0f}",
        )
    print_tables(table)
