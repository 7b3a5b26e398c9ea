"""The cost of a token for the page's worker beside the GPU, and the memory that Python takes.

    python -m tests.bench worker_cost [--tokens 24] [--json FILE]

Chromium's own trace is read: the CPU time of all tasks on the worker's thread while tokens are decoded (submitting the
plan, reading ids, Python, the tokenizer, messages to the page), divided by the tokens. The GPU's work happens in
another process and is not in it, so the figure does not depend on how fast the adapter is.
"""

from __future__ import annotations

import json
import subprocess
import sys

from playwright.sync_api import Browser, sync_playwright
from rich.table import Table

from app.building.system import CHROMIUM_FLAGS, WEBGPU_FLAG, find_chromium
from tests.bench.reporting import options_of, print_tables, write_figures

CATEGORIES = ["toplevel", "blink.user_timing", "__metadata"]
QUESTION = "Explain in a few sentences how a bicycle stays upright while it is moving."


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", "app.server.site", "--no-open", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*CHROMIUM_FLAGS, WEBGPU_FLAG])
            figures = measure(browser, address, options.tokens)
            browser.close()
    finally:
        server.terminate()
    write_figures(options, figures)
    show(figures)


def measure(browser: Browser, address: str, tokens: int) -> dict[str, float | str]:
    page = browser.new_page()
    page.goto(f"{address}/?backend=webgpu&max_tokens={tokens}")
    page.wait_for_function("() => document.documentElement.dataset.state === 'ready'", timeout=180_000)
    heap_loaded = page.evaluate("sonata.engine.pythonHeapBytes()")
    page.fill("#message", QUESTION)
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.press("#message", "Enter")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.answer .body')].at(-1)?.textContent.trim()", timeout=180_000
    )
    page.evaluate("performance.mark('decode-begins')")
    page.wait_for_function("() => document.documentElement.dataset.state === 'ready'", timeout=600_000)
    page.evaluate("performance.mark('decode-ends')")
    trace = json.loads(browser.stop_tracing())
    answer = page.evaluate("sonata.lastAnswer")
    info = page.evaluate("sonata.info")
    # The first token came before the mark.
    decoded = answer["newTokens"] - 1
    cpu = worker_cpu_ms(trace["traceEvents"])
    figures = {
        "adapter": info["adapter"],
        "tokens": decoded,
        "worker_cpu_ms_per_token": cpu / decoded,
        "decode_tok_s": answer["decodeTokS"],
        "python_heap_mb_loaded": heap_loaded / 1e6,
        "python_heap_mb_after_answer": page.evaluate("sonata.engine.pythonHeapBytes()") / 1e6,
    }
    page.close()
    return figures


def worker_cpu_ms(events: list[dict]) -> float:
    """CPU time in ms of the tasks on the worker's thread between the two marks."""
    begin, end = (
        next(event["ts"] for event in events if event.get("name") == name) for name in ("decode-begins", "decode-ends")
    )
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and "DedicatedWorker" in event["args"]["name"]
    }
    tasks = [
        event
        for event in events
        if event.get("name") == "ThreadControllerImpl::RunTask"
        and event["ph"] == "X"
        and (event["pid"], event["tid"]) in threads
        and begin <= event["ts"] <= end
    ]
    if not tasks:
        raise SystemExit("The trace holds no task of a worker: Chromium's categories have changed.")
    return sum(event.get("tdur", event["dur"]) for event in tasks) / 1000


def show(figures: dict[str, float | str]) -> None:
    table = Table(title="The worker's own cost of a token (wanted: under 1 ms, Python's heap under 150 MB)")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, value if isinstance(value, str) else f"{value:.3f}")
    print_tables(table)
