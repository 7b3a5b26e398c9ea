"""The start of the user's Python in the page: from the click on Run to the value of `1 + 1`.

    python -m tests.bench interpreter_start [--rounds N] [--dist PATH] [--json FILE]

Milliseconds of the first visit, then of visits with the same browser profile, whose files the service worker has kept.
The last column is a second run on the same visit, whose Python has started.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright
from rich.table import Table

from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, find_chromium
from tests.bench.in_browser import LIMIT_MS
from tests.bench.page.page_load import READY, start_server
from tests.bench.reporting import options_of, print_tables, write_figures

RUN = """async () => {
  const turn = sonata.chat.addTurn('And?');
  turn.append('```python\\n1 + 1\\n```');
  turn.finish({ reason: 'end' });
  const block = turn.answerElement.querySelector('.code-block');
  const shown = new Promise((resolve) => {
    new MutationObserver(() => block.querySelector('.python-text') && resolve(performance.now()))
      .observe(block, { childList: true, subtree: true });
  });
  const began = performance.now();
  block.querySelector('.code-run').click();
  return await shown - began;
}"""


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dist", type=Path, default=DIST)
    options = parser.parse_args()
    server, address = start_server("isolating", options.dist)
    starts, again = list[float](), list[float]()
    try:
        with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
            for _ in range(1 + options.rounds):
                context = playwright.chromium.launch_persistent_context(
                    profile, executable_path=find_chromium(), args=CHROMIUM_FLAGS
                )
                page = context.new_page()
                page.goto(f"{address}/?backend=wasm&routing=off")
                page.wait_for_function(f"() => {READY}", timeout=LIMIT_MS)
                starts.append(page.evaluate(RUN))
                again.append(page.evaluate(RUN))
                context.close()
    finally:
        server.terminate()
        server.communicate(timeout=10)
    first, *later = starts
    write_figures(options, {"first_ms": first, "later_ms": later, "again_ms": again})
    table = Table(title="Milliseconds from Run to the value")
    for column in ("first visit", f"later visits (median of {len(later)})", "slowest of them", "Python has started"):
        table.add_column(column, justify="right")
    table.add_row(*(f"{value:,.0f}" for value in (first, median(later), max(later), median(again))))
    print_tables(table)
    return 0
