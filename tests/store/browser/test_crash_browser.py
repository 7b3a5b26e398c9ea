"""Chromium killed with SIGKILL while the page writes: nothing that was stored is missing, nothing is damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from py_core.store.rows import LAYOUT
from tests.store.browser.browser_crash import kill_rounds, killable_browser
from tests.store.browser.page import BrowserThread

ROUNDS = 5


@pytest.mark.all
def test_a_browser_that_is_killed_loses_nothing_that_was_stored(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path
) -> None:
    figures = kill_rounds(browser_thread, chromium_path, tmp_path / "profile", site, ROUNDS)
    assert figures.get("error") is None
    assert (figures["missing"], figures["damaged"]) == (0, 0)
    assert figures["judged"] >= 10 * ROUNDS
    assert figures["stored"] >= figures["judged"]


IDS_AFTER_PUTTING = """async ([LAYOUT, ids]) => {
  const { memoryStore } = await import('/memory/indexeddb.js');
  const database = await memoryStore.open('memory', LAYOUT);
  const nothing = { deletes: [], clear: null, meta: {}, expectMeta: {}, expectVersions: [] };
  for (const id of ids) {
    const body = new TextEncoder().encode(JSON.stringify({ text: id.repeat(2000) }));
    await database.apply(JSON.stringify({ ...nothing, puts: [['pattern', id, 1, 1, body.length, -1, [], 0]] }), body);
  }
  return (await database.db.getAllKeys('rows')).map(([, id]) => id);
}"""


def test_a_log_that_ends_in_the_middle_of_a_write_is_not_written_on(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path
) -> None:
    """Chromium writes behind an entry that a kill tore, finds the log corrupt at the next start, and deletes
    everything: see `settle`."""
    profile = tmp_path / "profile"

    def session(*ids: str) -> set[str]:
        with killable_browser(browser_thread, chromium_path, profile) as (browser, _):
            page = browser_thread.wait(browser.contexts[0].new_page())
            browser_thread.wait(page.goto(f"{site}/THIRD_PARTY.txt"))
            return set(browser_thread.wait(page.evaluate(IDS_AFTER_PUTTING, [LAYOUT, list(ids)])))

    assert session("a", "b", "torn") == {"a", "b", "torn"}
    (log,) = (profile / "Default" / "IndexedDB").glob("*.leveldb/*.log")
    os.truncate(log, log.stat().st_size - 4000)
    assert session("c") == {"a", "b", "c"}
    assert session("d") == {"a", "b", "c", "d"}
