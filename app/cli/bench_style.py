"""`sonata bench style`: does a style learned from some answers appear in others?"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.table import Table

from app.bench.learning import volatile_learning
from app.bench.style import measure_style
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.terminal import console, progress_bar
from app.consolidation.style import MEASURES


@model_options("autotune")
def bench_style(
    styles: Annotated[
        list[str] | None, typer.Option("--style", help=f"One of {', '.join(MEASURES)}; may be given several times.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask only this many unseen prompts, for a quick look.")
    ] = None,
    options: ModelOptions = DEFAULTS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Learn a style from 30 answers in it, and look for it in answers to 30 other prompts, for four styles.

    For developers. Nothing is read from your memory, and nothing is stored.
    """
    if unknown := [name for name in styles or () if name not in MEASURES]:
        raise ValueError(f"There is no style {unknown[0]}; the styles are {', '.join(MEASURES)}.")

    async def run() -> dict[str, Any]:
        loaded = await options.load()
        try:
            with progress_bar("") as bar:
                task = bar.add_task("", total=None)

                def on_progress(what: str, done: int, total: int) -> None:
                    bar.update(task, description=what, completed=done, total=total)

                async with volatile_learning(loaded, options.model) as learning:
                    return await measure_style(
                        loaded, learning, styles or tuple(MEASURES), limit=limit, on_progress=on_progress
                    )
        finally:
            loaded.close()

    report = asyncio.run(run())
    if as_json:
        print(json.dumps(report))
    else:
        console().print(style_table(report))


def style_table(report: dict[str, Any]) -> Table:
    """report: the result of app.bench.style.measure_style."""
    table = Table(title=f"Styles, {report['prompts']} unseen prompts ({report['model']} on {report['backend']})")
    for heading in ("style", "verdict", "scale"):
        table.add_column(heading)
    for heading in (
        "nats a token",
        "the style's measure",
        "perplexity of texts",
        "KL, chat",
        "ms an update",
        "seconds",
    ):
        table.add_column(heading, justify="right")
    for name, one in report["styles"].items():
        (nll, nll_after), (measure, measure_after), (text, text_after) = (
            one[key] for key in ("unseen_nll", "measure", "perplexity")
        )
        table.add_row(
            name, one["verdict"], f"{one['figures']['scale']:.2f}", f"{nll:.2f} to {nll_after:.2f}",
            f"{MEASURES[name].words}: {measure:.2f} to {measure_after:.2f} ({one['wanted']:.2f} taught)",
            f"{text_after / text - 1:+.2%}", f"{one['chat_divergence']:.3f}", f"{one['update_ms']:.0f}",
            f"{one['seconds']:.0f}",
        )  # fmt: skip
    return table
