"""Schemas made to take long or much memory: seconds until a sentence or the first tokens, and the peak of the memory.

    python -m tests.bench hostile_schemas [--browser] [--only WORD] [--json FILE]

Natively the kernel and Python are measured in this process, with the tokens of the usual model, and with eight random
tokens that the masks allow. With --browser the whole page is, in Chromium, with eight tokens of that model: there MB
are what the page has more of after each.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from app.models.downloads import default_model_path
from tests.bench.in_browser import SonataTab, browsers_memory_mb, chromium, evaluate, local_server, processor
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.grammar.hostile_schemas import HOSTILE, MOST_BYTES, refusal_of
from tests.grammar.schema_suite import open_vocabulary

TOKENS = 8
SECONDS, MEGABYTES = 2, MOST_BYTES >> 20
"""The most that a schema may take."""


def memory_mb(what: str) -> float:
    """VmRSS, or the peak VmHWM, of this process. Linux."""
    found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def natively(names: list[str]) -> list[dict[str, Any]]:
    kernel, _ = open_vocabulary(default_model_path())

    def measured(name: str) -> dict[str, Any]:
        gc.collect()
        before = memory_mb("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        begin = time.perf_counter()
        said = refusal_of(kernel, HOSTILE[name], TOKENS)
        return {"name": name, "seconds": time.perf_counter() - begin, "mb": memory_mb("VmHWM") - before, "said": said}

    return [measured(name) for name in names]


def in_page(names: list[str]) -> list[dict[str, Any]]:
    found = []
    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, 1, "precise")
        for name in names:
            before = browsers_memory_mb()
            made = evaluate(
                tab.page,
                f"""async (schema) => {{
                    const begin = performance.now();
                    const given = {{ prompt: 'Hello', maxTokens: {TOKENS}, schema }};
                    const said = await sonata.engine.developer.generate(given).then(() => '', (error) => error.message);
                    return {{ seconds: (performance.now() - begin) / 1000, said }};
                }}""",
                HOSTILE[name],
            )
            # The memories of WASM keep their greatest size; other memory may be given back meanwhile.
            found.append({"name": name, **made, "mb": browsers_memory_mb() - before})
        tab.close()
    return found


def table_of(found: list[dict[str, Any]], where: str) -> Table:
    table = Table("schema", "seconds", "MB", "what was said", title=f"{where}, {processor()}")
    for one in found:
        over = "[red]" if one["seconds"] > SECONDS or one["mb"] > MEGABYTES else ""
        said = one["said"] if len(one["said"]) < 100 else one["said"][:40] + " ... " + one["said"][-50:]
        table.add_row(
            over + one["name"], f"{one['seconds']:.2f}", f"{one['mb']:,.0f}", said.replace("[", r"\[") or "an answer"
        )
    return table


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--browser", action="store_true", help="in the page, in Chromium")
    parser.add_argument("--only", default="", metavar="WORD", help="the schemas with this in their names")
    options = parser.parse_args()
    measure: Callable[[list[str]], list[dict[str, Any]]] = in_page if options.browser else natively
    found = measure([name for name in HOSTILE if options.only in name])
    write_figures(options, found)
    print_tables(table_of(found, "in the page" if options.browser else "natively"))
    return int(any(one["seconds"] > SECONDS or one["mb"] > MEGABYTES for one in found))
