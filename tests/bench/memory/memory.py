"""The speed of the memory's writes, reads and searches: SQLite natively, IndexedDB in Chromium, with and without a key.

    python -m tests.bench memory [--records 10000 50000] [--conversations 2000] [--json FILE]

Writes are batches of 100, each durable before the next. A search by meaning reads the ten records that it finds. The
first one opens the index: from the records alone, when each vector is compared, or with the graph that was written.
Conversations have 8 messages; they are searched for two words, and for the 200 most similar messages.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from app.building.system import find_chromium
from app.models.build_outputs import hnsw_kernel_path
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from py_core.store.passphrase import set_passphrase
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.bench.in_browser import local_server
from tests.bench.memory.memory_measure import UNCHECKED, measure, measure_conversations
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.store.browser.page import BrowserThread, Tab

COLUMNS = {
    "writes_per_s": "writes/s",
    "single_write_ms": "one write, ms",
    "read_ms": "one read, ms",
    "scanned_per_s": "scanned/s",
    "query_ms": "query, ms",
    "open_scan_ms": "first search, ms",
    "open_graph_ms": "the same, graph read, ms",
    "build_graph_s": "graph built, s",
    "write_graph_ms": "graph written, ms",
    "search_scan_ms": "search, scanned, ms",
    "search_graph_ms": "search, graph, ms",
    "index_scan_ms": "index alone, scanned, ms",
    "index_graph_ms": "index alone, graph, ms",
}
IN_PAGE = """
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
from py_core.store.passphrase import set_passphrase

async def main(name, count, encrypted, conversations):
    store = await Store.open(await IndexedDBRows.open(memory_store, name), crypto=crypto, kinds=UNCHECKED)
    if encrypted:
        await set_passphrase(store, "a benchmark")
    kernel = PyodideHnswKernel(hnsw_exports)
    figures = await measure(store, count, kernel)
    await store.clear()
    if conversations:
        figures = {**figures, **await measure_conversations(store, conversations, kernel)}
    await store.close()
    return figures
"""
CONVERSATION_COLUMNS = {
    "first_text_ms": "first search for words, ms",
    "text_ms": "search for words, ms",
    "first_meaning_ms": "first search by meaning, ms",
    "meaning_ms": "search by meaning, ms",
}


async def natively(count: int, encrypted: bool, conversations: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = await Store.open(await SQLiteRows.open(Path(folder) / "memory.sqlite"), kinds=UNCHECKED)
        if encrypted:
            await set_passphrase(store, "a benchmark")
        kernel = WasmtimeHnswKernel(hnsw_kernel_path())
        figures = await measure(store, count, kernel)
        await store.clear()
        if conversations:
            figures |= await measure_conversations(store, conversations, kernel)
        await store.close()
    return {"backend": "sqlite", "encrypted": encrypted, **figures}


def in_the_page(tab: Tab, count: int, encrypted: bool, conversations: int) -> dict[str, Any]:
    source = Path(__file__).with_name("memory_measure.py").read_text("utf-8") + IN_PAGE
    figures = asyncio.run(tab.call("run", source, f"bench-{count}-{encrypted}", count, encrypted, conversations))
    return {"backend": "indexeddb", "encrypted": encrypted, **figures}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--conversations", type=int, default=2000, help="searched by words and by meaning; 0: none")
    options = parser.parse_args()
    chats = [options.conversations, *(0 for _ in options.records[1:])]  # once each with and without a key
    kinds = [
        (count, encrypted, conversations)
        for count, conversations in zip(options.records, chats, strict=True)
        for encrypted in (False, True)
    ]
    figures = [asyncio.run(natively(*kind)) for kind in kinds]
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium: run `python build.py test` once, it installs one.")
    thread = BrowserThread()
    with local_server() as site, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        opening = thread.playwright.chromium.launch_persistent_context(
            profile, executable_path=program, args=["--no-sandbox", "--no-first-run"]
        )
        context = thread.wait(opening)
        tab = Tab.open(thread, context, site)
        figures += [in_the_page(tab, *kind) for kind in kinds]
        thread.wait(context.close())
    thread.close()
    write_figures(options, figures)
    show(figures)


def show(figures: list[dict[str, Any]]) -> None:
    for count in dict.fromkeys(row["records"] for row in figures):
        rows = [row for row in figures if row["records"] == count]
        table(f"The memory, {count:,} records", COLUMNS, rows)
    searched = [row for row in figures if "conversations" in row]
    if searched:
        table(f"Search in {searched[0]['conversations']:,} conversations", CONVERSATION_COLUMNS, searched)


def table(title: str, lines: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """A line for each figure, a column for each of `rows`."""
    shown = Table("", *(row["backend"] + ("\nencrypted" if row["encrypted"] else "") for row in rows), title=title)
    for figure, name in lines.items():
        shown.add_row(name, *(f"{row[figure]:,.0f}" if row[figure] >= 100 else f"{row[figure]:.2g}" for row in rows))
    print_tables(shown)
