"""Tables of texts: how many cells a model gets right, and how fast.

    python -m tests.bench extraction [--model NAME] [--unseen] [--only TASK] [--rows] [--json FILE]

The texts are in tests/bench/data/extraction.json, with the rows that are right; --unseen takes four texts that nothing
was chosen with. A row that was found is compared with the right row that it has the most cells of. Capitals and spaces
do not count. "given" counts all cells that were found: those that are not right are wrong or too many.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from app.cli.loading import BackendChoice, ModelOptions, Precision
from app.extraction.columns import columns_of
from app.extraction.table import TableExtraction
from app.generation.stop_token import StopToken
from app.models.cache import model_path
from tests.bench.reporting import options_of, print_tables, write_figures

DATA = Path(__file__).parents[1] / "data"
FIGURES = ("right", "cells", "given", "linked", "tokens", "seconds")


def same(given: Any, right: Any) -> bool:
    try:
        return float(given) == float(right)
    except (TypeError, ValueError):
        return " ".join(str(given).split()).casefold() == " ".join(str(right).split()).casefold()


def right_cells(given: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> int:
    """Each row that was given counts for one right row at most."""
    left, total = list(given), 0
    for wanted in right:
        best = max(left, key=lambda row: sum(same(row[name], wanted[name]) for name in wanted), default=None)
        if best is not None and (count := sum(same(best[name], wanted[name]) for name in wanted)):
            left.remove(best)
            total += count
    return total


async def measure(options: ModelOptions, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    model, found = await options.load(), []
    for task in tasks:
        columns, rows = columns_of(task["columns"]), list[dict[str, str]]()
        linked, begin = 0, time.perf_counter()
        table = TableExtraction(model, task["text"], columns)
        async for news in table.news(StopToken()):
            for row in news["rows"]:
                rows.append({column.name: cell["value"] for column, cell in zip(columns, row, strict=True)})
                linked += sum(cell["start"] is not None for cell in row)
        cells = len(task["rows"]) * len(columns)
        given, seconds = len(rows) * len(columns), time.perf_counter() - begin
        facts = {"right": right_cells(rows, task["rows"]), "cells": cells, "given": given, "linked": linked}
        found.append({"task": task["name"], **facts, "tokens": table.new_tokens, "seconds": seconds, "rows": rows})
    model.close()
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--model", default=None, help="a name or a file; the default is the shipped model")
    parser.add_argument("--only", metavar="TASK", help="one of the tasks")
    parser.add_argument("--unseen", action="store_true", help="texts that the rules for cells were not chosen with")
    parser.add_argument("--rows", action="store_true", help="also print the rows")
    given = parser.parse_args()
    path = Path(given.model) if given.model else None
    options = ModelOptions(model=path, backend=BackendChoice.wasm, precision=Precision.fast)
    tasks = json.loads((DATA / f"extraction{'_unseen' if given.unseen else ''}.json").read_text("utf-8"))
    found = asyncio.run(measure(options, [task for task in tasks if given.only in (None, task["name"])]))
    if given.rows:
        for one in found:
            print(one["task"], *(json.dumps(row, ensure_ascii=False) for row in one["rows"]), sep="\n  ")
    total = {"task": "all", **{name: sum(one[name] for one in found) for name in FIGURES}}
    table = Table("task", *FIGURES, title=model_path(path).name)
    for one in (*found, total):
        table.add_row(one["task"], *(f"{one[name]:.1f}" if name == "seconds" else str(one[name]) for name in FIGURES))
    print_tables(table)
    write_figures(given, {"model": model_path(path).name, "tasks": found, "all": total})
