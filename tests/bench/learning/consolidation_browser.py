"""A consolidation in the page: Chromium, the WASM backend. Used by consolidation.py --where browser."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from rich.table import Table

from app.lessons.facts import facts
from tests.bench.in_browser import SonataTab, browsers_cpu_seconds, chromium, evaluate, local_server, machine

LOOK_SECONDS = 0.5
ENDS = ("learned", "failed", "waiting")
READY = """async () => {
    while (document.documentElement.dataset.learning !== 'ready') await new Promise((go) => setTimeout(go, 100));
    await sonata.engine.learning.pause();
}"""
TEACH = "async ([question, answer]) => { await sonata.engine.learning.teach({ question, answer }); }"
LOOK = "async () => (await sonata.engine.learning.overview())"


def measure_in_browser(options: argparse.Namespace) -> dict[str, Any]:
    """Facts are taught, then a consolidation runs as it does in a pause. Time and CPU time by what it said it did."""
    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, options.workers, "precise", "&idle=0.1")
        evaluate(tab.page, READY)
        for fact in facts(options.split)[: options.facts]:
            evaluate(tab.page, TEACH, [fact.question, fact.answer])
        stages: dict[str, dict[str, float]] = {}
        begin = last = time.perf_counter()
        cpu_begin = cpu_last = browsers_cpu_seconds()
        evaluate(tab.page, "async () => { await sonata.engine.learning.resume(); }")
        before: dict[str, Any] = {"what": "begins", "done": 0}
        while True:
            found = evaluate(tab.page, LOOK)
            what = found["idle"]["what"]  # a text, or one that the page says in its language
            found["idle"]["what"] = what if isinstance(what, str) else what["text"]
            idle, now, cpu = found["idle"], time.perf_counter(), browsers_cpu_seconds()
            is_done = idle["state"] in ENDS and (found["trainings"] or idle["state"] == "failed")
            stage = stages.setdefault(before["what"], {"seconds": 0.0, "cpu_seconds": 0.0, "tokens": 0})
            stage["seconds"] += now - last
            stage["cpu_seconds"] += cpu - cpu_last
            stage["tokens"] += max(idle["done"] - before["done"], 0)
            if is_done:
                break
            if idle["what"] != before["what"]:
                print(f"{now - begin:6.1f} s: {idle['what']}", file=sys.stderr, flush=True)
            before, last, cpu_last = idle, now, cpu
            time.sleep(LOOK_SECONDS)
        training = (found["trainings"] or [{"why": idle["sentence"]}])[-1]
        return {
            "where": "browser", "split": options.split, "facts": options.facts, "workers": options.workers,
            "seconds": now - begin, "cpu_seconds": cpu - cpu_begin, "stages": stages,
            "training": {name: value for name, value in training.items() if name != "losses"},
            "machine": machine(browser),
        }  # fmt: skip


def browser_table(report: dict[str, Any]) -> Table:
    made, of = report["training"], report["machine"]
    table = Table(
        title=f"{report['facts']} facts of {report['split']} consolidated in Chromium {of['chromium']}, "
        f"{report['workers']} workers, load average {of['load']:.1f}",
        caption=f"{made.get('verdict', 'failed')}: {made['why']} {made.get('tokens', 0):,} tokens trained",
    )
    for name in ("it", "seconds", "CPU seconds"):
        table.add_column(name, justify="left" if name == "it" else "right")
    for name, one in report["stages"].items():
        table.add_row(name, f"{one['seconds']:.1f}", f"{one['cpu_seconds']:.1f}")
    table.add_section()
    table.add_row("in all", f"{report['seconds']:.1f}", f"{report['cpu_seconds']:.1f}")
    return table
