"""How long a stored conversation takes to be read, as a path with its variants, beside the bare records of its turns.

    python tests/bench/branches.py [--rounds 15] [--json FILE]

Medians in milliseconds, SQLite without a key; turns of 60 words. "Read" is what the page's list of turns takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from app.chat.turn_events import stored_turns
from app.runtime import problem_of_record
from py_core.memory.sessions import TURN, Sessions, Turn
from py_core.memory.sqlite import SQLiteRows
from py_core.memory.store import Store

KINDS = {"50 turns": (50, 0), "1,000 turns": (1000, 0), "1,000 turns, 3 branches of 200": (1000, 3)}


def said(count: int) -> list[Turn]:
    details = {"request": "r", "reason": "end", "tokens": 60}
    return [Turn(("user", "assistant")[n % 2], "word " * 60, details=details) for n in range(count)]


async def timed(work: Callable[[], Awaitable[object]], times: list[float]) -> None:
    begin = time.perf_counter()
    await work()
    times.append(1000 * (time.perf_counter() - begin))


async def measure(folder: Path, turns: int, branches: int, rounds: int) -> dict[str, float]:
    store = await Store.open(await SQLiteRows.open(folder / f"{turns}-{branches}.sqlite"), problem_of=problem_of_record)
    sessions = Sessions(store)
    session = await sessions.start("A conversation")
    await sessions.add_turns(session.id, *said(turns))
    for _ in range(branches):
        await sessions.add_turns(session.id, *said(200), after=min(99, turns - 1))
    figures: dict[str, list[float]] = {"records": [], "read": [], "add": []}

    async def read() -> None:
        stored_turns(session.id, await sessions.branches(session.id))

    for _ in range(rounds):  # in turns, so that a busy machine is as slow for each
        await timed(lambda: store.starting_with(TURN, f"{session.id}/"), figures["records"])
        await timed(read, figures["read"])
        await timed(lambda: sessions.add_turns(session.id, *said(2)), figures["add"])
    await store.close()
    return {name: round(median(times), 1) for name, times in figures.items()}


async def main(options: argparse.Namespace) -> None:
    table = Table("conversation", "records, ms", "read, ms", "add two turns, ms")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (turns, branches) in KINDS.items():
            found[name] = await measure(Path(folder), turns, branches, options.rounds)
            table.add_row(name, *(f"{value:.1f}" for value in found[name].values()))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    asyncio.run(main(parser.parse_args()))
