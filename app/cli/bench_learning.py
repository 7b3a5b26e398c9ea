"""`sonata bench learning`: how much of the taught facts is recalled, and the side effects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from enum import StrEnum
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from app.bench.learning import FACTS, measure_learning, volatile_learning
from app.bench.learning_plots import learning_plots, write_plots
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.terminal import console, progress_bar


class SplitChoice(StrEnum):
    dev = "dev"
    held = "held"


@model_options("autotune")
def bench_learning(
    split: Annotated[SplitChoice, typer.Option(help="dev was used to choose settings, held was not.")] = (
        SplitChoice.dev
    ),
    count: Annotated[int, typer.Option("--facts", min=1, help="How many facts to teach.")] = FACTS,
    stored: Annotated[
        list[int],
        typer.Option(help="Then add facts up to this number, and ask again; 0 for none. May be given twice."),
    ] = [1000],  # noqa: B006 - typer makes a new one
    seed: Annotated[int, typer.Option(min=0, help="Draws which facts are taught; 0 takes the first ones.")] = 0,
    consolidating: Annotated[
        bool,
        typer.Option(
            "--consolidate", help="Also consolidate the facts as the background loop does; this takes minutes."
        ),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask only this many facts and prompts of each kind, for a quick look.")
    ] = None,
    options: ModelOptions = DEFAULTS,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also plot the results into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Teach invented facts to an empty memory, ask for them in other words, and for what they do not answer.

    For developers. Nothing is read from your memory, and nothing is stored.
    """

    async def run() -> dict[str, Any]:
        loaded = await options.load()
        try:
            with progress_bar("{task.description}") as bar:
                task = bar.add_task("", total=None)

                def on_progress(what: str, done: int, total: int) -> None:
                    bar.update(task, description=what, completed=done, total=total)

                async with volatile_learning(loaded, options.model) as learning:
                    return await measure_learning(
                        loaded, learning, split.value, count=count, stored=stored, seed=seed, limit=limit,
                        consolidating=consolidating, on_progress=on_progress,
                    )  # fmt: skip
        finally:
            loaded.close()

    report = asyncio.run(run())
    if plot is not None:
        write_plots(plot, learning_plots(report))
    if as_json:
        print(json.dumps(report))
    else:
        console().print(learning_tables(report))


def learning_tables(report: dict[str, Any]) -> Group:
    consolidated = [_consolidation_table(report)] if "consolidation" in report else []
    return Group(_recall_table(report), _teaching_table(report), *consolidated, *_sentences(report))


def _recall_table(report: dict[str, Any]) -> Table:
    title = f"{report['facts']} facts of {report['split']} ({report['model']} on {report['backend']})"
    table = Table(title=title)
    table.add_column("share of those asked")
    table.add_column("asked", justify="right")
    table.add_column("untaught", justify="right")
    for size in report["stored"]:
        table.add_column(f"{size:,} stored", justify="right")
    columns = list(report["stored"].values())
    for name, words in (("questions", "the taught question"), ("paraphrases", "other words")):
        for key, what in (
            ("right", "answered right"),
            ("found", "right lesson found"),
            ("misled", "wrong lesson found"),
            ("read_right", "of those answered right, read"),
            ("read_wrong", "of those misled, read"),
        ):
            untaught = f"{report['untaught'][name][key]:.1%}" if key == "right" else ""
            shares = (f"{column[name][key]:.1%}" for column in columns)
            asked = str(columns[0][name]["asked"])
            table.add_row(f"{words}: {what}", asked, untaught, *shares, end_section=key == "read_wrong")
    kinds = ((("kinds", kind), f"generic prompts, {kind}") for kind in columns[0]["kinds"])
    groups = (("near",), "near misses"), (("generic",), "generic prompts"), *kinds, (("paragraphs",), "unrelated texts")
    for path, words in groups:
        found = [reduce(getitem, path, column) for column in columns]
        asked = str(found[0]["asked"])
        for key, what in (("opened", "a lesson found"), ("unsure", "lessons read"), ("read", "one of these answers")):
            table.add_row(f"{words}: {what}", asked, "", *(f"{one[key]:.1%}" for one in found))
    return table


def _teaching_table(report: dict[str, Any]) -> Table:
    table = Table(title="Teaching")
    for heading in ("lessons", "median ms", "nats a token before", "after", "worst after"):
        table.add_column(heading, justify="right")
    made = report["taught"]
    figures = f"{made['ms']:.0f}", *(f"{made[key]:.3f}" for key in ("nll_before", "nll_after", "nll_after_worst"))
    table.add_row(str(made["lessons"]), *figures)
    return table


def _consolidation_table(report: dict[str, Any]) -> Table:
    made, before = report["consolidation"], report["perplexity"]["before"]
    table = Table(title="Consolidated, without lessons", show_header=False)
    for name, words in (("questions", "the taught question"), ("paraphrases", "other words")):
        table.add_row(f"{words}: answered right", f"{made[name]['right']:.1%} of {made[name]['asked']}")
    grown = made["perplexity"] / before - 1
    table.add_row("perplexity of unrelated texts", f"{before:.4f}, now {made['perplexity']:.4f} ({grown:+.2%})")
    run = made["run"]
    table.add_row("verdict", f"{run['verdict']}: {run['why']}")
    table.add_row("tokens, seconds", f"{run['tokens']:,}, {run['seconds']:,.0f}")
    return table


def _sentences(report: dict[str, Any]) -> Iterator[str]:
    found = report["perplexity"]
    yield (
        f"Perplexity of {found['tokens']:,} tokens of unrelated texts: {found['before']:.4f}, with all that was taught "
        f"{found['after']:.4f} ({found['change']:+.2%})."
    )
    for size, column in report["stored"].items():
        yield f"Searching {size:,} lessons takes {column['look_ms']:.1f} ms (median)."
