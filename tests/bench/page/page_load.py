"""The time until the page accepts a question: first, second and third visit, and without the server.

    python -m tests.bench page_load [--rounds N] [--backend wasm] [--dist PATH] [--json FILE]

Each round begins with an empty browser profile on disk. `isolating` is `sonata serve`; `plain` is a server without COOP
and COEP, where the first visit reloads once. In brackets: the CPU time of all of the browser's processes, its own start
included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright
from rich.table import Table

from app.building.common import ROOT
from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG, find_chromium
from tests.bench.in_browser import LIMIT_MS, browsers_cpu_seconds, until_ready
from tests.bench.reporting import options_of, print_tables, write_figures

PLAIN = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1"]
READY = "['ready', 'failed'].includes(document.documentElement.dataset.state)"
QUESTIONS = ("Why is the sky blue?", "Write a haiku about rain.", "Name three fish.")
VISITS = ("first", "second", "third", "offline")
SERVERS = ("isolating", "plain")


def start_server(kind: str, dist: Path) -> tuple[subprocess.Popen[str], str]:
    if kind == "isolating":
        command = [sys.executable, "-u", "-m", "app.server.site", "--no-open", "--port", "0", "--dist", str(dist)]
    else:
        command = [*PLAIN, "--directory", str(dist), "0"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    port = line.rsplit(":", 1)[1].split()[0] if kind == "isolating" else line.split(" port ")[1].split()[0]
    return server, f"http://localhost:{port}"


def seconds_to_ready(visit: Callable[[], object], page: Page) -> float:
    began = time.monotonic()
    visit()
    until_ready(page)
    return time.monotonic() - began


def use(page: Page) -> None:
    """Use the page as a person would before the next visit: a few questions, some seconds apart.

    Chromium keeps the machine code of WebAssembly once more of it is needed, seconds after the rest was compiled; after
    a visit without a question it compiles all of it again.
    """
    for question in QUESTIONS:
        page.wait_for_timeout(3000)
        page.fill("#message", question)
        page.press("#message", "Enter")
        page.wait_for_function("() => document.documentElement.dataset.state === 'answering'", timeout=LIMIT_MS)
        page.wait_for_function(f"() => {READY}", timeout=LIMIT_MS)
    page.wait_for_function("() => document.documentElement.dataset.offline === 'ready'", timeout=LIMIT_MS)
    page.wait_for_timeout(2000)  # the written data has reached the disk's cache


def one_round(kind: str, dist: Path, backend: str) -> dict[str, float]:
    server, address = start_server(kind, dist)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:

        def visit(name: str) -> None:
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=find_chromium(), args=[*CHROMIUM_FLAGS, WEBGPU_FLAG]
            )
            page = context.new_page()
            figures[name] = seconds_to_ready(lambda: page.goto(f"{address}/?backend={backend}&max_tokens=40"), page)
            figures[f"{name}_cpu"] = browsers_cpu_seconds()  # of this one: the visits before have ended theirs
            if name == "first":
                use(page)
            context.close()

        try:
            visit("first")
            visit("second")
            visit("third")
        finally:
            server.terminate()
            server.communicate(timeout=10)
        visit("offline")
    return figures


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="wasm")
    parser.add_argument("--dist", type=Path, help="a site that was built before (default: this checkout's, built now)")
    parser.add_argument("--before", type=Path, help="another site: rounds of both in turns, and the ratio of the two")
    parser.add_argument("--server", choices=(*SERVERS, "both"), default="both")
    options = parser.parse_args()
    if not options.dist:
        subprocess.run([sys.executable, "build.py", "site"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    sites = {"": options.dist or DIST} | ({"before": options.before} if options.before else {})
    names = [(server, site) for server in SERVERS if options.server in (server, "both") for site in sites]
    measured: dict[tuple[str, str], list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(options.rounds):
        for server, site in names if turn % 2 else names[::-1]:
            measured[server, site].append(one_round(server, sites[site], options.backend))
    medians = {name: {key: median(r[key] for r in rounds) for key in rounds[0]} for name, rounds in measured.items()}
    ratios = {
        server: {key: median(map(ratio_of(key), rounds, measured[server, "before"])) for key in rounds[0]}
        for (server, site), rounds in measured.items()
        if options.before and not site
    }
    found = {"backend": options.backend, "ratios": ratios}
    for key, figures in (("median_s", medians), ("rounds_s", measured)):
        found[key] = {" ".join(name).strip(): each for name, each in figures.items()}
    write_figures(options, found)
    table = Table(title=f"Seconds until the page is ready ({options.backend}, median of {options.rounds})")
    for column in ("server", "first visit", "second visit", "third visit", "server gone"):
        table.add_column(column, justify="left" if column == "server" else "right")
    for (server, site), figures in medians.items():
        cells = (f"{figures[visit]:.1f} ({figures[f'{visit}_cpu']:.1f})" for visit in VISITS)
        table.add_row(f"{server} {site}".strip(), *cells)
    for server, figures in ratios.items():
        cells = (f"{figures[visit]:.3f} ({figures[f'{visit}_cpu']:.3f})" for visit in VISITS)
        table.add_row(f"{server}, ratio", *cells)
    print_tables(table)


def ratio_of(key: str) -> Callable[[dict[str, float], dict[str, float]], float]:
    return lambda now, before: now[key] / before[key]
