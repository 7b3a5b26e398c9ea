"""The gain of guessed tokens in the page: tokens a second with and without them, in turns, by kind of task.

    python -m tests.bench speculation [--rounds 3] [--tokens 160] [--precision precise] [--workers 2] [--json FILE]

Headless Chromium, the WASM backend, the usual model, greedy: answers to the tasks in data/speculation.toml, which are
the same text with and without. Figures are of decoding, medians over rounds and tasks; ratios are medians of each
pair's.

    python -m tests.bench speculation --draft FILE [--model FILE] [--backend wasm|webgpu] [--temperature 0]

measures natively (wasmtime on one core, or wgpu-py) the gain of a draft model as well: how many of its guesses were
right, the tokens of a pass with them, and the speed as a multiple of the speed without any guess. draft_models.py makes
files for it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from app.models.downloads import default_model_path
from py_core.sampling import SamplingParams
from tests.bench.engine.speculation_draft import draft_table, measure_draft, open_both
from tests.bench.in_browser import SonataTab, chromium, evaluate, local_server, machine
from tests.bench.reporting import options_of, print_tables, write_figures

TASKS = Path(__file__).parents[1] / "data" / "speculation.toml"
ASK = """async ({ prompt, tokens, isOn }) => {
  await sonata.engine.developer.speculate({ on: isOn });
  return sonata.engine.developer.generate({ prompt, maxTokens: tokens });
}"""


def measure(tab: SonataTab, tasks: list[dict[str, str]], rounds: int, tokens: int) -> list[dict[str, Any]]:
    def ask(task: dict[str, str], on: bool) -> dict[str, Any]:
        return evaluate(tab.page, ASK, {"prompt": task["prompt"].strip(), "tokens": tokens, "isOn": on})

    for task in tasks[:3]:
        ask(task, True)  # so that the browser has compiled the hot code
    found = []
    for turn in range(rounds):
        for number, task in enumerate(tasks):
            pair = {on: ask(task, on) for on in ((True, False) if turn % 2 else (False, True))}
            plain, guessed = (pair[on]["decodeTokS"] for on in (False, True))
            same = pair[True]["tokens"] == pair[False]["tokens"]
            found.append({"task": number, "kind": task["kind"], "plain": plain, "guessed": guessed, "same": same})
            print(found[-1], file=sys.stderr)
    return found


def by_kind_of(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Medians of what `measure` found, by kind of task."""
    return {
        kind: {
            "plain": median(one["plain"] for one in found if one["kind"] == kind),
            "guessed": median(one["guessed"] for one in found if one["kind"] == kind),
            "times": median(one["guessed"] / one["plain"] for one in found if one["kind"] == kind),
            "same": all(one["same"] for one in found if one["kind"] == kind),
        }
        for kind in dict.fromkeys(one["kind"] for one in found)
    }


def table_of(by_kind: dict[str, dict[str, Any]], title: str) -> Table:
    """A row for each kind of task."""
    table = Table(title=title)
    for column in ("", "without guesses", "with", "times", "same answers"):
        table.add_column(column, justify="right" if column else "left")
    for kind, figures in by_kind.items():
        speeds = [f"{figures['plain']:,.0f}", f"{figures['guessed']:,.0f}", f"{figures['times']:.2f}"]
        table.add_row(kind, *speeds, "yes" if figures["same"] else "no")
    return table


async def with_draft(options: argparse.Namespace, tasks: list[dict[str, str]]) -> None:
    path = options.model or default_model_path()
    model = await open_both(path, options.draft, options.backend, options.precision)
    sampling = SamplingParams(temperature=options.temperature, top_p=0.95, seed=1)
    found = await measure_draft(model, tasks, options.rounds, options.tokens, sampling)
    model.close()
    title = f"{path.stem}, draft {options.draft.stem}, {options.backend}, {options.precision}"
    print_tables(draft_table(found, title))


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--precision", choices=("precise", "fast"), default="precise")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--draft", type=Path, metavar="FILE")
    parser.add_argument("--model", type=Path, metavar="FILE", help="with --draft; the usual model otherwise")
    parser.add_argument("--backend", choices=("wasm", "webgpu"), default="wasm", help="with --draft")
    parser.add_argument("--temperature", type=float, default=0.0, help="with --draft")
    options = parser.parse_args()
    tasks = tomllib.loads(TASKS.read_text("utf-8"))["task"]
    if options.draft:
        asyncio.run(with_draft(options, tasks))
        return
    with local_server() as address, chromium() as browser:
        tab = SonataTab(browser, address, options.workers, options.precision, "&routing=off")
        found = measure(tab, tasks, options.rounds, options.tokens)
        about = machine(browser)
    by_kind = by_kind_of(found)
    write_figures(options, {"machine": about, "kinds": by_kind, "runs": found})
    print_tables(table_of(by_kind, f"Decoding, tok/s, {options.precision}, {options.workers} workers"))
