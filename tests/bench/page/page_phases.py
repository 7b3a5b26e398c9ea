"""Where the time of a page's start goes: milliseconds from the beginning of the visit until each part of it is done.

    python -m tests.bench page_phases [--rounds N] [--backend wasm] [--dist PATH] [--json FILE]

The first visit begins with an empty browser profile, the others with the profile of the earlier visits: in the second
one the browser still compiles much of the page's JavaScript. The last one is without a server. The page's and its
worker's marks come from web/common/phase.js; what they do runs side by side, so a phase is not the sum of those above
it. "first token" is of a message that was typed once the page was ready: the milliseconds between brackets are from
sending it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.table import Table

from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG, find_chromium
from tests.bench.in_browser import LIMIT_MS
from tests.bench.page.page_load import READY, VISITS, start_server, use
from tests.bench.reporting import options_of, print_tables, write_figures

MESSAGE = "Why is the sky blue?"
OF_PAGE = """() => {
  const [visit] = performance.getEntriesByType('navigation');
  const marks = performance.getEntriesByType('mark').map(({ name, startTime }) => [name, startTime]);
  const paints = performance.getEntriesByType('paint').map(({ name, startTime }) => [name, startTime]);
  return {
    origin: performance.timeOrigin,
    phases: {
      html: visit.responseEnd, ...Object.fromEntries(paints), 'page parsed': visit.domInteractive,
      ...Object.fromEntries(marks),
    },
  };
}"""
OF_WORKER = """() => ({
  origin: performance.timeOrigin,
  phases: Object.fromEntries(performance.getEntriesByType('mark').map(({ name, startTime }) => [name, startTime])),
})"""
ASK = """async (message) => {
  const log = document.querySelector('#log');
  const box = document.querySelector('#message');
  const answered = new Promise((resolve) => {
    new MutationObserver(() => {
      if (log.querySelector('.answer .body')?.textContent.trim()) resolve(performance.now());
    }).observe(log, { childList: true, subtree: true, characterData: true });
  });
  box.value = message;
  box.dispatchEvent(new Event('input'));
  const began = performance.now();
  box.form.requestSubmit();
  return [began, await answered];
}"""


def phases_of(page: Page) -> dict[str, float]:
    found = page.evaluate(OF_PAGE)
    phases = dict(found["phases"])
    for worker in page.workers:
        of_worker: dict[str, Any] = worker.evaluate(OF_WORKER)
        late = of_worker["origin"] - found["origin"]
        phases |= {name: late + at for name, at in of_worker["phases"].items()}
    return {name.removeprefix("sonata: "): at for name, at in phases.items() if "sonata" in name or ":" not in name}


def one_round(dist: Path, backend: str) -> dict[str, dict[str, float]]:
    server, address = start_server("isolating", dist)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        for name in VISITS:
            if name == "offline":
                server.terminate()
                server.communicate(timeout=10)
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=find_chromium(), args=[*CHROMIUM_FLAGS, WEBGPU_FLAG]
            )
            page = context.new_page()
            page.goto(f"{address}/?backend={backend}&max_tokens=40")
            page.wait_for_function(f"() => {READY}", timeout=LIMIT_MS)
            began, answered = page.evaluate(ASK, MESSAGE)
            figures[name] = phases_of(page) | {"first token": answered, "from sending": answered - began}
            if name == "first":
                use(page)
            context.close()
    return figures


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="wasm")
    parser.add_argument("--dist", type=Path, default=DIST)
    options = parser.parse_args()
    rounds = [one_round(options.dist, options.backend) for _ in range(options.rounds)]
    names = {name: median(each["second"].get(name, 0.0) for each in rounds) for name in rounds[0]["second"]}
    medians = {
        visit: {name: median(r[visit][name] for r in rounds if name in r[visit]) for name in rounds[0][visit]}
        for visit in VISITS
    }
    write_figures(options, {"backend": options.backend, "median_ms": medians, "rounds_ms": rounds})
    table = Table(title=f"Milliseconds of the visit until ... ({options.backend}, median of {options.rounds})")
    for column in ("", *VISITS):
        table.add_column(column, justify="right" if column else "left")
    for name in sorted(names, key=names.__getitem__):
        if name != "from sending":
            table.add_row(name, *(f"{medians[v][name]:,.0f}" if name in medians[v] else "" for v in VISITS))
    table.add_row("(from sending)", *(f"{medians[visit]['from sending']:,.0f}" for visit in VISITS))
    print_tables(table)
    return 0
