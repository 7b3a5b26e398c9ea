"""Eight hours of use, at high speed: the growth of the page's memory from the end of each hour to the next.

    python -m tests.bench eight_hours [--hours 8] [--chats 5] [--messages 8] [--json FILE] [--plot FILE]

An hour is some chats of some messages each, with variants, an edited message, files that are attached and removed,
searches by words and by meaning, chats that are renamed, pinned, deleted and opened again, every panel with its tabs,
the model's menu, a change of the width, and a pause in which the page may learn. The page is the real one with a tiny
model and the real router. At the end of an hour a new chat is open and no panel; garbage is collected, then everything
is measured (page_memory.py). The first hour opens what is loaded late: growth is counted from its end, as a line
through the hours (least squares), and shown beside what the stored conversations grew by.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Error, Locator, Page, sync_playwright
from rich.table import Table

from app.bench.plots import Line, Plot, svg_of
from app.building.site.dist import DIST
from app.building.system import CHROMIUM_FLAGS, find_chromium
from tests.bench.page.page_memory import PageMemory, put_hook
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.page.plain_server import PlainServer
from tests.page.small_site import SmallSite

QUERY = "?backend=wasm&workers=1&max_tokens=12&idle=2"
LIMIT_MS = 120_000
STUCK = Path(tempfile.gettempdir()) / "eight_hours_stuck.png"
STATE = "document.documentElement.dataset.state"
KINDS_SHOWN = 12
FACTS = ("The harbour opens at six.", "Basil needs six hours of light.", "Knots hold better in dry rope.")
QUESTIONS = (
    "Why is the sky blue on day {}?", "Rewrite this: the meeting number {} is cancelled.", "17 * {} is what?",
    "Write a function that reverses string {}.", "Summarise the weather of week {} in a **table**.",
)  # fmt: skip


class Person:
    """Uses the page."""

    def __init__(self, page: Page) -> None:
        self.page, self.said = page, 0

    def ready(self) -> None:
        self.page.wait_for_function(f"() => {STATE} === 'ready'", timeout=LIMIT_MS)

    def hour(self, chats: int, messages: int) -> None:
        for number in range(chats):
            self.page.click("#new-chat")
            if number % 2:
                self.attach()
            for _ in range(messages):
                self.ask()
            self.vary()
        self.search()
        self.manage()
        for panel in ("Learned", "Agents", "Settings"):
            self.look_at(panel)
        self.menus()
        self.resize()
        self.page.wait_for_timeout(3000)  # a pause: it may learn
        self.page.click("#new-chat")
        self.ready()

    def ask(self) -> None:
        self.said += 1
        shown = self.page.locator(".question").count()
        self.page.fill("#message", QUESTIONS[self.said % len(QUESTIONS)].format(self.said))
        self.page.press("#message", "Enter")
        self.page.wait_for_function(
            "(count) => document.querySelectorAll('.question').length > count", arg=shown, timeout=LIMIT_MS
        )
        self.ready()
        # Once its place in the store is known. The tiny model may end at once, and an empty answer is not stored.
        stored = self.page.locator(".question").last.get_by_role("button", name="Edit")
        stored.or_(self.silent).wait_for(state="attached", timeout=LIMIT_MS)

    @property
    def silent(self) -> Locator:
        return self.page.locator(".answer").last.locator(".ending", has_text="The model said nothing.")

    def vary(self) -> None:
        again = self.page.locator(".answer").last.get_by_role("button", name="Try again")
        if not again.count() or self.silent.count():  # it was computed, or is not stored
            return
        again.first.click()
        self.page.locator(".answer").last.locator(".variants-place").or_(self.silent).first.wait_for(timeout=LIMIT_MS)
        self.ready()
        if self.silent.count():
            return
        self.page.locator(".answer").last.get_by_role("button", name="Earlier version").press("Enter")
        self.ready()
        place = self.page.locator(".answer").last.locator(".variants-place")
        place.filter(has_text="1 / 2").wait_for(timeout=LIMIT_MS)

    def attach(self) -> None:
        text = "\n\n".join(FACTS[(self.said + n) % len(FACTS)] * 20 for n in range(10)).encode()
        files = [{"name": name, "mimeType": "text/plain", "buffer": text} for name in ("notes.txt", "more.txt")]
        self.page.locator("#composer input[type=file]").set_input_files(files)  # type: ignore[arg-type]
        self.page.wait_for_function(
            "() => document.querySelectorAll('.file-chip[data-state=ready]').length === 2", timeout=LIMIT_MS
        )
        self.page.locator(".file-chip button").last.click()
        self.page.wait_for_function("() => document.querySelectorAll('.file-chip').length === 1", timeout=LIMIT_MS)

    def search(self) -> None:
        field = self.page.locator("#chats input[type=search]")
        for word in ("sky", "meeting", "harbour", "something about ropes", "nothing of the kind"):
            field.fill(word)
            self.page.wait_for_timeout(500)
        field.fill("")

    def manage(self) -> None:
        """Rename and pin the newest chat, delete the one behind it, and open an old one."""
        ids = self.page.eval_on_selector_all("#chats li[data-chat]", "(all) => all.map((one) => one.dataset.chat)")
        for id, entry in ((ids[0], "Pin"), (ids[0], "Unpin"), (ids[1], "Delete")):
            row = self.page.locator(f"#chats li[data-chat='{id}']")
            row.hover()
            row.locator("button").first.click()
            self.page.get_by_role("menuitem", name=entry, exact=True).click()
            self.page.wait_for_timeout(300)
        self.page.locator(f"#chats li[data-chat='{ids[-1]}'] a").click()
        self.page.locator("#log article").first.wait_for(timeout=LIMIT_MS)
        self.ready()

    def look_at(self, panel: str) -> None:
        for _ in range(2):
            self.page.locator("#sidebar").get_by_role("link", name=panel, exact=True).click()
            self.page.locator("#panel h2").first.wait_for(timeout=LIMIT_MS)
            for tab in self.page.locator("#panel [role=tab]:visible").all():
                tab.click()
                self.page.wait_for_timeout(250)
            self.page.locator("#panel .panel-close").click()
            self.page.locator("#panel").wait_for(state="hidden")

    def menus(self) -> None:
        self.page.click("#model-chip")
        self.page.wait_for_timeout(200)
        self.page.keyboard.press("Escape")

    def resize(self) -> None:
        for width in (390, 1280):
            self.page.set_viewport_size({"width": width, "height": 800})
            self.page.wait_for_timeout(200)
        if not self.page.is_visible("#chats"):
            self.page.click("#sidebar-open")


def growth(samples: Sequence[dict[str, Any]], name: str) -> float:
    """Return the growth per hour, from the end of the first hour on."""
    values = [sample[name] for sample in samples[1:] if name in sample]
    return float(np.polyfit(range(len(values)), values, 1)[0]) if len(values) > 1 else float("nan")


def grown_kinds(samples: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the types of Python's objects with the number of new ones each hour."""
    known = [sample["python kinds"] for sample in samples[1:] if "python kinds" in sample]
    if len(known) < 2:
        return {}
    hours = len(known) - 1
    rates = {kind: (count - known[0].get(kind, 0)) / hours for kind, count in known[-1].items()}
    return dict(sorted(rates.items(), key=lambda pair: -pair[1])[:KINDS_SHOWN])


def figures_of(samples: Sequence[dict[str, Any]]) -> list[str]:
    return [name for name, value in samples[-1].items() if isinstance(value, float | int) and name != "seconds"]


def show(samples: Sequence[dict[str, Any]]) -> None:
    table = Table("", "begin", "hour 1", f"hour {len(samples) - 1}", "an hour more", title="What the page holds (MB)")
    for name in figures_of(samples):
        cells = (samples[n].get(name, float("nan")) for n in (0, min(1, len(samples) - 1), -1))
        table.add_row(name, *(f"{value:,.2f}" for value in cells), f"{growth(samples, name):+,.3f}")
    print_tables(table)
    for kind, more in grown_kinds(samples).items():
        print(f"  Python's {kind}: {more:+,.1f} an hour")


def plots(samples: Sequence[dict[str, Any]]) -> str:
    def line(name: str) -> Line:
        values = [(hour, sample.get(name, float("nan"))) for hour, sample in enumerate(samples)]
        start = values[1][1] if len(values) > 1 else 0.0
        return Line(name, [(hour, value - start) for hour, value in values[1:]])

    return svg_of(
        [
            Plot("More than after hour 1", "hour", "MB", [
                line("JavaScript, all"), line("WASM memories"), line("stored, conversations"), line("stored, other"),
            ]),
            Plot("More than after hour 1", "hour", "count", [
                line("nodes not in the document"), line("event listeners"), line("Python objects, thousands"),
            ]),
        ]
    )  # fmt: skip


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--hours", type=int, default=8)
    parser.add_argument("--chats", type=int, default=5, help="an hour")
    parser.add_argument("--messages", type=int, default=8, help="a chat")
    parser.add_argument("--plot", type=Path, help="also draw the growth here, as SVG")
    options = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, sync_playwright() as playwright:
        small = SmallSite(DIST, Path(place) / "site")
        put_hook(small)
        with PlainServer(small.folder) as server:
            server.guards = True
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.on("pageerror", lambda error: print(f"the page: {error}", file=sys.stderr))
            memory, person = PageMemory(page), Person(page)
            page.goto(f"{server.url}/{QUERY}")
            person.ready()
            page.wait_for_function("() => document.documentElement.dataset.routing === 'ready'", timeout=LIMIT_MS)
            samples.append(memory.sample())
            for hour in range(options.hours):
                begin = time.perf_counter()
                try:
                    person.hour(options.chats, options.messages)
                except Error:
                    page.screenshot(path=STUCK)
                    raise
                samples.append(memory.sample() | {"seconds": time.perf_counter() - begin})
                print(f"hour {hour + 1}: {person.said} messages, {samples[-1]['seconds']:.0f} s", file=sys.stderr)
                write_figures(options, samples)
            browser.close()
    show(samples)
    if options.plot:
        options.plot.write_text(plots(samples), "utf-8")
