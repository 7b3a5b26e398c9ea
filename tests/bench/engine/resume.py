"""The first token of a conversation of 2,000 tokens that is opened again after a restart, with and without kept pages.

    python -m tests.bench resume [--backend wasm|webgpu] [--precision precise|fast] [--tokens 2000] [--rounds 3]
        [--encrypted] [--json FILE]

Natively (wasmtime or wgpu-py), with SmolLM2-135M; the pages are in SQLite. Each time is of a model and a database that
were opened again; medians. The file lies in the machine's own cache of files, as after a reload.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from rich.table import Table

from app.chat.kept_pages import KeptPages
from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Timings
from py_core.engine.page_keeping import PageShelf
from py_core.formats.source import FileSource
from py_core.loading import BackendLoader, load_model
from py_core.paging.page_table import PAGE
from py_core.sampling import SamplingParams
from py_core.store.encryption import Lock, NativeCrypto, new_lock
from py_core.store.sqlite import SQLiteRows
from tests.bench.reporting import options_of, print_tables, write_figures

QUESTION = 20
CHAT = "a chat"


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(1000, 40_000, count).tolist()


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


class OneChat:
    """A `PageShelf`."""

    def __init__(self, pages: KeptPages) -> None:
        self.names = partial(pages.names, CHAT)
        self.read = partial(pages.read, CHAT)
        self.write = partial(pages.write, CHAT)
        self.drop = partial(pages.drop, CHAT)


async def first_token(
    loader: BackendLoader, tokens: Sequence[int], path: Path, lock: Lock | None, keeps: bool, takes: bool
) -> dict[str, float]:
    """Return the times of a new program. keeps: it writes the pages to disk. takes: it looks for pages there."""
    model = await load_model(FileSource(default_model_path()), loader, native_renderer())
    model.name_file("SmolLM2-135M")
    pages = KeptPages(await SQLiteRows.open(path), lambda: lock, 1 << 30)
    shelf: PageShelf = OneChat(pages)
    sequence, timings = model.engine.new_sequence(), Timings()
    begin = time.perf_counter()
    await model.engine.prefill(sequence, tokens, timings, shelf=shelf if takes else None)
    async for _ in model.engine.generate(sequence, 1, SamplingParams(), timings, ignore_end=True):
        pass
    found = {"ms": 1000 * (time.perf_counter() - begin), "reused": float(timings.reused_tokens)}
    found["pages_ms"] = 1000 * model.engine.pages.page_seconds * timings.reused_tokens / PAGE
    if keeps:
        begin = time.perf_counter()
        await model.engine.pages.keep(sequence, shelf)
        found["keep_ms"] = 1000 * (time.perf_counter() - begin)
    await pages.close()
    model.close()
    return found


async def measure(backend: str, precision: str, tokens: int, rounds: int, encrypted: bool) -> dict[str, float]:
    def loader() -> BackendLoader:
        if backend == "webgpu":
            return partial(load_webgpu, WgpuHost())
        return partial(load_wasm, WasmtimeHost(kernel_path()), precision=precision)

    lock = await new_lock(NativeCrypto(), "a passphrase") if encrypted else None
    chat, times = drawn(tokens, seed=0), dict[str, list[float]](read=[], taken=[])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.sqlite"
        kept = await first_token(loader(), chat, path, lock, True, False)
        for turn in range(rounds):
            asked = chat + drawn(QUESTION, seed=1 + turn)
            for name in ("read", "taken"):
                one = await first_token(loader(), asked, path, lock, False, name == "taken")
                times[name].append(one["ms"])
        size = megabytes(Path(folder))
    found = {f"{name}_ms": median(one) for name, one in times.items()}
    return found | {"reused": one["reused"], "pages_ms": one["pages_ms"], "keep_ms": kept["keep_ms"], "file_mb": size}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encrypted", action="store_true")
    options = parser.parse_args()
    given = {name: value for name, value in vars(options).items() if name != "json"}
    found = asyncio.run(measure(**given))
    write_figures(options, given | found)
    table = Table(title=f"First token of a chat of {options.tokens:,} tokens after a restart, {options.backend}")
    for column in (
        "all read, ms",
        "from disk, ms",
        "of that pages",
        "times as fast",
        "tokens from disk",
        "keeping, ms",
        "file, MB",
    ):
        table.add_column(column, justify="right")
    table.add_row(
        f"{found['read_ms']:,.0f}", f"{found['taken_ms']:,.0f}", f"{found['pages_ms']:,.0f}",
        f"{found['read_ms'] / found['taken_ms']:.1f}",
        f"{found['reused']:,.0f}", f"{found['keep_ms']:,.0f}", f"{found['file_mb']:.0f}",
    )  # fmt: skip
    print_tables(table)
