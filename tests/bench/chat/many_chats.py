"""The side bar's work in a memory of many conversations: its list, search by words and by meaning, opening one.

    python -m tests.bench many_chats [--conversations 1000] [--turns 50] [--browser] [--passphrase] [--json FILE]

In a file of SQLite on this machine, and with --browser in the real page, in Chromium's IndexedDB (many_chats_page.py;
with --passphrase there also encrypted). "first": after a start, when nothing was read yet; "then": the median of ten.
Opening the memory ("start", the fastest of three; in the page the whole page's start, medians) is compared with an
empty one's.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from app.records.kinds import KINDS
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.bench.chat.many_chats_measure import fill, measure
from tests.bench.chat.many_chats_page import in_chromium, pack_rows
from tests.bench.reporting import options_of, write_figures


async def natively(folder: Path, conversations: int, turns: int) -> dict[str, float]:
    """Measure on this machine, and pack the rows into the folder, for the page."""

    async def open_store(which: str) -> Store:
        return await Store.open(await SQLiteRows.open(folder / f"{which}.sqlite"), kinds=KINDS)

    if not (folder / "full.sqlite").exists():
        await fill(open_store, conversations, turns)
    figures = await measure(open_store)
    rows = await SQLiteRows.open(folder / "full.sqlite")
    await pack_rows(rows, folder)
    await rows.close()
    return figures


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--browser", action="store_true", help="in Chromium, too")
    parser.add_argument("--passphrase", action="store_true", help="in Chromium with a passphrase, too")
    parser.add_argument("--rounds", type=int, default=5, help="starts of the page, with and without conversations")
    parser.add_argument("--folder", type=Path, help="keep the conversations here, or take those that are there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        figures = {"SQLite": asyncio.run(natively(folder, given.conversations, given.turns))}
        if given.browser or given.passphrase:
            figures |= in_chromium(folder, given.rounds, given.passphrase)
    for place, found in figures.items():
        print(place)
        for name, value in found.items():
            print(f"  {name:<70}{value:>10,.3f}" if "ratio" in name else f"  {name:<70}{value:>10,.1f} ms")
    write_figures(given, figures)
