"""The side bar's work in a memory of many conversations: its list, search by words and by meaning, opening one.

    python tests/bench/many_chats.py [--conversations 1000] [--turns 50] [--browser] [--json FILE]

In a file of SQLite on this machine, and with --browser in Chromium's IndexedDB. "first": after a start, when nothing
was read yet; "then": the median of ten. Opening the memory ("start", the fastest of three) is compared with an empty
one's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "memory")]

from in_browser import local_server  # noqa: E402
from many_chats_measure import fill, measure  # noqa: E402
from page import BrowserThread, Tab  # noqa: E402

from app.building.system import find_chromium  # noqa: E402
from py_core.memory.sqlite import SQLiteRows  # noqa: E402
from py_core.memory.store import Store  # noqa: E402

IN_PAGE = """
async def main(name, conversations, turns):
    async def open_store(which):
        return await Store.open(await IndexedDBRows.open(memory_store, f"{name}-{which}"), crypto=crypto)
    await fill(open_store, conversations, turns)
    return await measure(open_store)
"""


async def natively(conversations: int, turns: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:

        async def open_store(which: str) -> Store:
            return await Store.open(await SQLiteRows.open(Path(folder) / f"{which}.sqlite"))

        await fill(open_store, conversations, turns)
        return await measure(open_store)


def in_chromium(conversations: int, turns: int) -> dict[str, Any]:
    thread = BrowserThread()
    try:
        with local_server() as site:
            tab = Tab.open(thread, thread.launch(find_chromium()), site)
            source = Path(__file__).with_name("many_chats_measure.py").read_text("utf-8") + IN_PAGE
            return tab.run(source, "many-chats", conversations, turns)
    finally:
        thread.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--browser", action="store_true", help="in Chromium, too")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    figures = {"SQLite": asyncio.run(natively(given.conversations, given.turns))}
    if given.browser:
        figures["IndexedDB"] = in_chromium(given.conversations, given.turns)
    for place, found in figures.items():
        print(place)
        for name, value in found.items():
            print(f"  {name:<38}{value:>10,.1f} ms")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1), "utf-8")


if __name__ == "__main__":
    main()
