"""The page with a larger model that the user keeps: its start, a chat, a file, a sum, a lesson, and the memory.

    python -m tests.bench kept_model [--model qwen2.5-coder-0.5b] [--backend wasm] [--turns 20] [--json FILE]

`python build.py models 0.5b` fetches the model first. The browser has a profile on disk. The file is opened in the
page, which copies it; once its weights are kept as well, the browser starts again, twice. Seconds are those of a
person: from the visit until the page is ready, from Enter until the first words and until the answer's end. Memory is
what the processes of the tab and the GPU hold (Linux).
"""

from __future__ import annotations

import tempfile
import time
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright
from rich.table import Table

from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG, find_chromium
from app.models.cache import ModelCache
from tests.bench.in_browser import LIMIT_MS, STATE, browsers_memory_mb, local_server, processor, until_ready
from tests.bench.reporting import options_of, print_tables, write_figures

MESSAGES = tomllib.loads((Path(__file__).parents[1] / "data" / "first_messages.toml").read_text("utf-8"))["messages"]
WORDS = 1500
"""Words of the file that is attached; what is asked for stands in its middle."""
UNTIL_KEPT = """async (nbytes) => {
  const isKept = async () => (await sonata.storedModels()).some((model) => model.bytes === nbytes && model.weights);
  for (let waits = 0; waits < 300 && !await isKept(); waits++) await new Promise((resolve) => setTimeout(resolve, 500));
}"""
HIDDEN = "The spare key of the boathouse hangs behind the third oar."
ASK = """async (message) => {
  const log = document.querySelector('#log'), box = document.querySelector('#message');
  const before = log.querySelectorAll('.answer').length, begun = performance.now();
  const shown = () => [...log.querySelectorAll('.answer .body')].slice(before).some((one) => one.textContent.trim());
  const first = new Promise((resolve) => {
    const watcher = new MutationObserver(() => { if (shown()) { watcher.disconnect(); resolve(performance.now()); } });
    watcher.observe(log, { childList: true, subtree: true, characterData: true });
  });
  box.value = message;
  box.dispatchEvent(new Event('input'));
  box.form.requestSubmit();
  const words = await first;
  while (document.documentElement.dataset.state !== 'ready') await new Promise((resolve) => setTimeout(resolve, 20));
  const answer = [...log.querySelectorAll('.answer .body')].at(-1).textContent.trim();
  return { first: (words - begun) / 1000, all: (performance.now() - begun) / 1000, answer };
}"""


def visited(page: Page, address: str) -> float:
    """Open the page. Returns the seconds until it is ready."""
    begun = time.monotonic()
    page.goto(address)
    until_ready(page)
    return time.monotonic() - begun


def open_page(playwright: Playwright, profile: str) -> BrowserContext:
    return playwright.chromium.launch_persistent_context(
        profile, executable_path=find_chromium(), args=[*CHROMIUM_FLAGS, WEBGPU_FLAG], bypass_csp=True
    )


def bring(page: Page, path: Path) -> None:
    """Open the model's file in the page, and wait until it runs."""
    page.click("#model-chip")
    page.click("#models-button")
    page.wait_for_selector("#models .models-open")
    page.set_input_files("#models input[type=file]", path)
    page.wait_for_function(f"() => {STATE} === 'loading'", timeout=LIMIT_MS)
    until_ready(page)


def converse(page: Page, turns: int) -> dict[str, Any]:
    """A chat of many turns, then one each with a file, a sum, and a lesson that is asked for in other words."""

    def ask(message: str) -> dict[str, Any]:
        told: dict[str, Any] = page.evaluate(ASK, message)
        return {"message": message, **told}

    found: dict[str, Any] = {"chat": [ask(message) for message in MESSAGES[:turns]]}
    page.click("#new-chat")
    filler = "The harbour is quiet in winter, and the boats lie under their covers. " * (WORDS // 26)
    file = {"name": "notes.txt", "mimeType": "text/plain", "buffer": f"{filler}{HIDDEN} {filler}".encode()}
    page.set_input_files("#attach-input, input[type=file][multiple]", [file])
    page.wait_for_timeout(500)
    found["file"] = ask("Where does the spare key of the boathouse hang?")
    page.click("#new-chat")
    found["sum"] = ask("What is 15% of 1,240?")
    found["lesson"] = ask("Remember that my dentist is Dr. Quill.")
    found["recall"] = ask("Who is my dentist?")
    return found


def measure(model: str, backend: str, turns: int) -> dict[str, Any]:
    path = ModelCache().path_of(model)
    found: dict[str, Any] = {"model": model, "backend": backend, "cpu": processor(), "bytes": path.stat().st_size}
    with local_server() as address, tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        for name in ("first", "second", "third"):
            context = open_page(playwright, profile)
            page = context.new_page()
            opened = visited(page, f"{address}/?backend={backend}")
            if name == "first":
                found["small_ready_s"], found["small_mb"] = opened, browsers_memory_mb()
                begun = time.monotonic()
                bring(page, path)
                found["brought_s"] = time.monotonic() - begun
                if backend == "wasm":
                    page.evaluate(UNTIL_KEPT, path.stat().st_size)
                page.wait_for_timeout(3000)  # what is written reaches the disk
            else:
                found[f"{name}_ready_s"] = opened
            found[f"{name}_mb"] = browsers_memory_mb()
            if name == "third":
                found["info"] = page.evaluate("sonata.info")
                found |= converse(page, turns)
                found["after_mb"] = browsers_memory_mb()
            context.close()
    return found


def table_of(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['model']} in the page, {found['info']['adapter']}; {found['cpu']}", show_header=False)
    chat = found["chat"]
    rows = {
        "brought from the disk until it runs, s": f"{found['brought_s']:.1f}",
        "ready on the second, third visit, s": f"{found['second_ready_s']:.1f}, {found['third_ready_s']:.1f}",
        f"{len(chat)} turns: first words, s (median, last)":
            f"{median(one['first'] for one in chat):.2f}, {chat[-1]['first']:.2f}",
        f"{len(chat)} turns: whole answers, s": f"{sum(one['all'] for one in chat):.0f}",
        "a file: first words, s": f"{found['file']['first']:.1f} ({'third oar' in found['file']['answer']})",
        "a sum, s": f"{found['sum']['first']:.2f}",
        "a lesson, s": f"{found['lesson']['all']:.2f}",
        "recalled: first words, s": f"{found['recall']['first']:.2f} ({'Quill' in found['recall']['answer']})",
        "memory of tab and GPU, MB: small model, this one, after the chat":
            ", ".join(f"{found[name]:,.0f}" for name in ("small_mb", "third_mb", "after_mb")),
    }  # fmt: skip
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="the name of a kept model")
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    found = measure(options.model, options.backend, options.turns)
    write_figures(options, found)
    print_tables(table_of(found))
