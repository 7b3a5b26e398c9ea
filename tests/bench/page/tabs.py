"""The cost of a second and a third tab: the time until each is ready, and the memory of all tabs' processes.

    python -m tests.bench tabs [--tabs 3] [--query "?backend=wasm"] [--json FILE]

Each tab is opened when the one before is ready. Memory is the proportional set size of Chromium's renderer processes
(shared pages count once; Linux only); the row of a tab has the increase. "alone" is a tab that shares nothing (another
address), for comparison.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page
from rich.table import Table

from tests.bench.in_browser import LIMIT_MS, chromium, local_server
from tests.bench.reporting import options_of, print_tables, write_figures


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tabs", type=int, default=3)
    parser.add_argument("--query", default="?backend=wasm")
    options = parser.parse_args()
    with local_server() as address, chromium() as browser:
        figures = measure(browser, f"{address}/{options.query}", options.tabs)
    write_figures(options, figures)
    table = Table("tab", "ready after s", "renderers MB", "came with it MB", "runs the model")
    before = 0.0
    for row in figures:
        more = row["renderers_mb"] - before
        table.add_row(row["tab"], f"{row['ready_s']:.2f}", f"{row['renderers_mb']:.0f}", f"{more:.0f}", row["runs"])
        before = row["renderers_mb"]
    print_tables(table)


def measure(browser: Browser, url: str, count: int) -> list[dict[str, Any]]:
    context = browser.new_context()
    session = browser.new_browser_cdp_session()
    warm(context, url)
    rows = [opened(context, session, url, str(number + 1)) for number in range(count)]
    rows.append(opened(context, session, f"{url}&max_tokens=1000", "alone"))
    context.close()
    return rows


def warm(context: BrowserContext, url: str) -> None:
    """Make the first visit: the browser keeps the service worker and the model."""
    page = context.new_page()
    page.goto(url)
    ready(page)
    page.wait_for_function("() => navigator.serviceWorker.controller", timeout=LIMIT_MS)
    page.close()


def opened(context: BrowserContext, session: CDPSession, url: str, name: str) -> dict[str, Any]:
    page, begin = context.new_page(), time.perf_counter()
    page.goto(url)
    ready(page)
    seconds = time.perf_counter() - begin
    page.wait_for_timeout(3000)  # routing and lessons are loaded, garbage is collected
    runs = any(worker.url.endswith("/engine/worker.js") for worker in page.workers)
    return {"tab": name, "ready_s": seconds, "renderers_mb": renderers_mb(session), "runs": "yes" if runs else "no"}


def ready(page: Page) -> None:
    page.wait_for_function("() => document.documentElement.dataset.state === 'ready'", timeout=LIMIT_MS)


def renderers_mb(session: CDPSession) -> float:
    """The proportional set size of all renderer processes."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = (pss_kb(process["id"]) for process in processes if process["type"] == "renderer")
    return sum(sizes) / 1024


def pss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
