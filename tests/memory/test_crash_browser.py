"""Chromium killed with SIGKILL while the page writes: nothing older than a second is missing, nothing is damaged."""

from __future__ import annotations

from pathlib import Path

from browser_crash import kill_rounds
from page import BrowserThread


def test_a_browser_killed_five_times(
    browser_thread: BrowserThread, chromium_path: Path, site: str, tmp_path: Path
) -> None:
    figures = kill_rounds(browser_thread, chromium_path, tmp_path / "profile", site, rounds=5)
    assert figures.get("error") is None
    assert (figures["missing"], figures["damaged"]) == (0, 0)
    assert figures["judged"] > 100
    assert figures["stored"] >= figures["judged"]
