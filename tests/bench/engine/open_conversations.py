"""Many conversations open at once in the memory of few: how many are held, and how soon one of them continues.

    python -m tests.bench open_conversations [--backend wasm|webgpu] [--precision precise|fast] [--model FILE]
        [--conversations 1000] [--tokens 64] [--budget MB] [--asked 40] [--rounds N] [--json FILE]

Natively (wasmtime on one core, or wgpu-py). Each conversation reads --tokens tokens, no two alike. Then some of them
generate 8 tokens each; "first token" is the median time until the first of these. A "held" conversation still has its
pages, a "let go" conversation reads its tokens again. "as alone" counts conversations with the same tokens as without
others.

With --rounds N a tiny model is asked instead, N times as often as there are conversations, in memory for half of them:
the share of the asked conversations' tokens that are read again, in turn, at random, and if some are asked more. These
are counts, the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from rich.table import Table

from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.memory_use import HOT
from py_core.backends.pipelined import PipelinedBackend
from py_core.engine.engine import Engine, Timings
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.paging.page_table import pages_of
from py_core.token_sequence import TokenSequence
from tests.bench.engine.parallel_sequences import GREEDY, drawn, loader_of
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.tiny.llama import TinyLlama

SAID = 8


async def say(engine: Engine, sequence: TokenSequence) -> tuple[list[int], float]:
    """Return the next tokens, and the milliseconds until the first."""
    begin, first, said = time.perf_counter(), 0.0, list[int]()
    async for ids in engine.generate(sequence, SAID, GREEDY, Timings(), ignore_end=True):
        first = first or 1000 * (time.perf_counter() - begin)
        said += ids
    return said, first


async def keep_pages_within(engine: Engine, nbytes: int) -> None:
    """Change the memory limit so that keys and values may take `nbytes` bytes."""
    use = engine.memory()
    pages = sum((one.conversations + one.kept + one.free) for one in use.pages.values())
    await engine.limit_memory(use.total - pages + nbytes)


async def measure(options: argparse.Namespace) -> dict[str, object]:
    path = options.model or default_model_path()
    model = await load_model(FileSource(path), loader_of(options.backend, options.precision), native_renderer())
    engine, count = model.engine, options.conversations
    backend = engine.backend
    await keep_pages_within(engine, options.budget << 20)
    texts = [drawn(options.tokens, seed) for seed in range(count)]
    sequences = []
    for text in texts:
        sequences.append(engine.new_sequence())
        await engine.prefill(sequences[-1], text, Timings())
    use, times, right = backend.memory(), {"held": list[float](), "let go": list[float]()}, 0
    asked = random.Random(0).sample(range(count), min(options.asked - options.asked // 4, count))
    # Some of the last opened conversations still have their pages.
    asked += random.Random(1).sample(range(max(0, count - 32), count), min(options.asked // 4, count))
    for number in dict.fromkeys(asked):
        kind = "held" if sequences[number].stored else "let go"
        said, first = await say(engine, sequences[number])
        times[kind].append(first)
        alone = engine.new_sequence(shares=False)
        await engine.prefill(alone, texts[number], Timings())
        right += said == (await say(engine, alone))[0]
        engine.free(alone)
    pages, adapter = use.pages[HOT], engine.capabilities.adapter
    model.close()
    return {
        "model": Path(path).name, "adapter": adapter, "conversations": count, "tokens": options.tokens,
        "budget_mb": options.budget, "pages_mb": sum((pages.conversations, pages.kept, pages.free)) / 2**20,
        "all_mb": use.total / 2**20, "first_token_ms": {kind: median(ms) for kind, ms in times.items() if ms},
        "asked": {kind: len(ms) for kind, ms in times.items()}, "as_alone": right,
    }  # fmt: skip


async def read_again(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Return the share of the asked conversations' tokens that are read again, by the order of asking."""
    count, found, draw = options.conversations, dict[str, object](), random.Random(2)
    asked = range(count * options.rounds)
    orders = {
        "in turn": [at % count for at in asked],
        "at random": [draw.randrange(count) for _ in asked],
        "a quarter mostly": [draw.randrange(count // 4 if draw.random() < 0.8 else count) for _ in asked],
        "a few, then others": [at // 3 % 6 + at // (count * options.rounds // 4) * 6 for at in asked],
    }
    path = TinyLlama(context=options.tokens * 2).write(folder / "tiny.gguf")
    for name, order in orders.items():
        model = await load_model(FileSource(path), loader_of(options.backend, options.precision), native_renderer())
        engine, backend = model.engine, model.engine.backend
        assert isinstance(backend, PipelinedBackend)
        table = backend.pages.table
        assert table is not None
        page = backend.memory().pages[HOT].free // table.capacity
        await keep_pages_within(engine, count // 2 * pages_of(options.tokens + SAID) * page)
        read, write_rows = 0, backend.passes._write_rows

        async def counted(sequence: TokenSequence, first: int, stop: int, logit_rows: int, write=write_rows) -> int:
            nonlocal read
            read += stop - first
            return int(await write(sequence, first, stop, logit_rows))

        texts = [np.random.default_rng(seed).integers(0, 256, options.tokens).tolist() for seed in range(count)]
        sequences = [engine.new_sequence() for _ in texts]
        for one, text in zip(sequences, texts, strict=True):
            await engine.prefill(one, text, Timings())
        backend.passes._write_rows = counted  # type: ignore[method-assign]
        held = 0
        for number in order:
            one = sequences[number]
            engine.truncate(one, options.tokens)  # another answer, so that all texts stay as long
            held += one.length
            await say(engine, one)
        found[name] = read / held
        model.close()
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--budget", type=int, default=256, help="MB of keys and values")
    parser.add_argument("--asked", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=0, help="ask all of them in turn, and count what is read again")
    options = parser.parse_args()
    if options.rounds:
        with TemporaryDirectory() as folder:
            found = asyncio.run(read_again(options, Path(folder)))
    else:
        found = asyncio.run(measure(options))
    write_figures(options, found)
    table = Table(title=f"{options.conversations} conversations of {options.tokens} tokens")
    for column in ("", "value"):
        table.add_column(column)
    for name, value in found.items():
        table.add_row(name, f"{value:.3g}" if isinstance(value, float) else str(value))
    print_tables(table)
