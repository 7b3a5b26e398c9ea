"""Chromium killed with SIGKILL while the page writes: nothing older than a second is missing, nothing is damaged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from browser_crash import NAME, kill_rounds, killable_tab
from page import BrowserThread, PageRows, Tab

from py_core.memory.records import Record
from py_core.memory.store import Store


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.all)])
def test_a_browser_that_is_killed_loses_nothing_that_is_older_than_a_second(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path, rounds: int
) -> None:
    figures = kill_rounds(browser_thread, chromium_path, tmp_path / "profile", site, rounds)
    assert figures.get("error") is None
    assert (figures["missing"], figures["damaged"]) == (0, 0)
    assert figures["judged"] > 100
    assert figures["stored"] >= figures["judged"]


async def ids_after_putting(tab: Tab, *ids: str) -> set[str]:
    """Of all records, some of them new."""
    store = await Store.open(await PageRows.open(tab, NAME))
    for id in ids:
        await store.put(Record("pattern", id, {"text": id * 2000}))
    return {record.id async for record in store.scan()}


def test_a_log_that_ends_in_the_middle_of_a_write_is_not_written_on(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path
) -> None:
    """Chromium writes behind what a kill tore, finds that corrupt at the next start, and deletes all: see `settle`."""
    profile = tmp_path / "profile"

    def session(*ids: str) -> set[str]:
        with killable_tab(browser_thread, chromium_path, profile, site, {}) as (tab, _):
            return asyncio.run(ids_after_putting(tab, *ids))

    assert session("a", "b", "torn") == {"a", "b", "torn"}
    (log,) = (profile / "Default" / "IndexedDB").glob("*.leveldb/*.log")
    os.truncate(log, log.stat().st_size - 4000)
    assert session("c") == {"a", "b", "c"}
    assert session("d") == {"a", "b", "c", "d"}
