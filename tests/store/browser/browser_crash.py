"""Kills Chromium with SIGKILL at random moments while the page writes, and checks the stored data afterwards.

Used by the test (a few rounds) and by tests/bench/memory/crash_browser.py (fifty).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Browser
from playwright.async_api import Error as PlaywrightError

from app.building.system import CHROMIUM_FLAGS
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.store import Store
from tests.store.browser.page import BrowserThread, PageRows, Tab

LONGEST_SECONDS = 3.0
STARTS = 3
NAME = "crash"
WRITER = """
import asyncio, numpy as np
from py_core.store.kinds import Kinds
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.write_batch import BatchedWriter

async def main(number):
    store = await Store.open(await IndexedDBRows.open(memory_store, "crash"), kinds=Kinds(others=True))
    writer = BatchedWriter(store)
    while True:
        for _ in range(10):
            vector = np.full(384, number, np.float32)
            writer.put(Record("measure", str(number), {"number": number, "text": "x" * 200}, vector))
            number += 1
        await writer.flush()
        report(f"stored {number - 1}")
        async with store.transaction() as transaction:
            transaction.put(Record("pair", f"{number} left"))
            transaction.put(Record("pair", f"{number} right"))
        await asyncio.sleep(0.01)
"""


class Chromium:
    """A browser process of our own, with a profile that outlives it."""

    def __init__(self, program: Path, profile: Path) -> None:
        command = [
            program,
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            *CHROMIUM_FLAGS,
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stderr is not None
        self.address = next(
            (line.rsplit(" ", 1)[1].strip() for line in self._process.stderr if "DevTools listening on" in line), ""
        )
        if not self.address:
            raise RuntimeError("Chromium did not start")

    def kill(self) -> None:
        """Kill the browser process, then the rest of it, so that the next one finds its profile free."""
        if self._process.returncode is not None:
            return
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextlib.contextmanager
def killable_browser(thread: BrowserThread, program: Path, profile: Path) -> Iterator[tuple[Browser, Chromium]]:
    """A new browser on this profile, which is killed at the end if it is still running."""
    for attempt in range(STARTS):
        chromium = Chromium(program, profile)
        try:
            browser = thread.wait(thread.playwright.chromium.connect_over_cdp(chromium.address))
            break
        except PlaywrightError:  # on a busy machine it sometimes does not answer
            chromium.kill()
            if attempt == STARTS - 1:
                raise
    try:
        yield browser, chromium
    finally:
        chromium.kill()
        with contextlib.suppress(PlaywrightError):  # it is dead
            thread.wait(browser.close())


@contextlib.contextmanager
def killable_tab(
    thread: BrowserThread, program: Path, profile: Path, site: str, said: Callable[[str], None] = print
) -> Iterator[tuple[Tab, Chromium]]:
    """A tab in a `killable_browser`. said: gets the page's console output."""
    with killable_browser(thread, program, profile) as (browser, chromium):
        yield Tab.open(thread, browser.contexts[0], site, said), chromium


async def stored_in(tab: Tab) -> set[int]:
    """The numbers of the records, each of which must be whole. Raises AssertionError or StoreError."""
    store = await Store.open(await PageRows.open(tab, NAME), kinds=Kinds(others=True))
    found = set()
    async for record in store.scan("measure"):
        number = record.body["number"]
        if record.vector is None or not np.array_equal(record.vector, np.full(384, number, np.float32)):
            raise AssertionError(f"record {number} is damaged")
        found.add(number)
    pairs = Counter([record.id.split()[0] async for record in store.scan("pair")])
    if any(count != 2 for count in pairs.values()):
        raise AssertionError("half a transaction is there")
    await store.close()
    return found


def kill_rounds(
    thread: BrowserThread, program: Path, profile: Path, site: str, rounds: int, seed: int = 0
) -> dict[str, Any]:
    """Figures of `rounds` kills on one profile: all must be 0 except rounds and judged.

    judged: records that the page said were stored before its browser was killed; missing: of these, and of those
    that an earlier round found; damaged: rounds after which something was unreadable or incomplete.
    """
    chance = random.Random(seed)
    figures: dict[str, Any] = {"rounds": rounds, "judged": 0, "missing": 0, "damaged": 0, "stored": 0}
    known, old = set[int](), set[int]()
    for turn in range(rounds + 1):
        reports: list[int] = []

        def said(text: str, reports: list[int] = reports) -> None:
            if text.startswith("stored "):
                reports.append(int(text[7:]))

        with killable_tab(thread, program, profile, site, said) as (tab, chromium):
            try:
                found = asyncio.run(stored_in(tab))
            except (AssertionError, StoreError) as error:
                figures["damaged"] += 1
                figures["error"] = str(error)
                found = set()
            figures["missing"] += len((known | old) - found)
            known = found
            if turn == rounds:
                break
            start = max(known, default=-1) + 1_000_000
            work = asyncio.run_coroutine_threadsafe(tab.call("run", WRITER, start), thread.loop)
            while not reports and not work.done():
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, LONGEST_SECONDS))
            heard = reports[:]
            chromium.kill()
            with contextlib.suppress(Exception):  # the page is gone
                work.result(timeout=10)
            old = set(range(start, max(heard, default=start - 1) + 1))
            figures["judged"] += len(old)
    figures["stored"] = len(known)
    return figures
