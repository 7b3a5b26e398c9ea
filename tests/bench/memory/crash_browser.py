"""Kills Chromium at random moments while the page writes to its memory, and checks what is missing afterwards.

    python -m tests.bench crash_browser [--rounds 50] [--json FILE]

Each round starts Chromium on the same profile, checks what the rounds before left, and writes as fast as it can until
the browser process is killed with SIGKILL. `missing` and `damaged` must be 0.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.table import Table

from app.building.system import find_chromium
from tests.bench.in_browser import local_server
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.store.browser.browser_crash import kill_rounds
from tests.store.browser.page import BrowserThread


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium: run `python build.py test` once, it installs one.")
    thread = BrowserThread()
    with local_server() as site, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        figures = kill_rounds(thread, program, Path(profile), site, options.rounds, options.seed)
    thread.close()
    write_figures(options, figures)
    table = Table("", "records", title=f"Chromium killed {figures['rounds']} times")
    for name in ("judged", "missing", "damaged", "stored"):
        table.add_row(name, f"{figures[name]:,}")
    print_tables(table)
    return int(bool(figures["missing"] or figures["damaged"]))
