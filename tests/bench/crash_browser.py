"""Kills Chromium at random moments while the page writes to its memory, and looks what is missing afterwards.

    python tests/bench/crash_browser.py [--rounds 50] [--json FILE]

Each round starts Chromium on the same profile, checks what the rounds before left, and writes as fast as it can until
the browser process is killed with SIGKILL. `missing` and `damaged` must be 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from in_browser import local_server
from rich.console import Console
from rich.table import Table

from app.building.system import find_chromium

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
from browser_crash import kill_rounds
from page import BrowserThread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium: run `python build.py test` once, it installs one.")
    thread = BrowserThread()
    with local_server() as site, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        figures = kill_rounds(thread, program, Path(profile), site, options.rounds, options.seed)
    thread.close()
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    table = Table("", "records", title=f"Chromium killed {figures['rounds']} times")
    for name in ("judged", "missing", "damaged", "stored"):
        table.add_row(name, f"{figures[name]:,}")
    Console().print(table)
    return int(bool(figures["missing"] or figures["damaged"]))


if __name__ == "__main__":
    sys.exit(main())
