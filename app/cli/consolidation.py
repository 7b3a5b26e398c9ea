"""`sonata consolidate`: train the lessons into an adapter of the whole model now, instead of in a pause."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.home import HomeOption, opened_runtime
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.cli.models import JsonOption
from app.cli.terminal import console, progress_bar, say
from app.consolidation.deep_loop import DeepLoop, DeepReport
from app.consolidation.history import run_entry
from app.consolidation.service import RefusedBeforeError
from app.generation.answer_adapters import AnswerAdapters
from app.records.revisions import Run
from py_core.engine.scheduler import Priority
from py_core.messages import Words

notes = console(stderr=True)
GOES_ON = "The next `sonata consolidate` continues from here; until then all answers stay as before."
VERDICTS = {"accepted": "accepted", "scaled": "accepted, scaled down", "refused": "refused"}


@model_options("autotune", "context")
def consolidate(
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after this time; the next call continues.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Then review all answers together, as the deep loop does after some days.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything drawn at random.")] = 0,
    home: HomeOption = None,
    options: ModelOptions = DEFAULTS,
    as_json: JsonOption = False,
) -> None:
    """Train what was taught into an adapter of the model, check it on texts that it was not trained on, and decide.

    Answers to what was taught come from lessons at once; this moves them into the model itself. Ctrl-C ends it:
    the progress so far is kept, and the next call continues from there.
    """

    async def run() -> tuple[Run | str | None, DeepReport | None]:
        loaded = await options.load()
        try:
            adapters = AnswerAdapters(loaded.engine)
            async with opened_runtime(home, loaded, options.model, adapters) as runtime:
                if runtime.consolidation is None:
                    raise ValueError(runtime.problem or "The background loop cannot be opened.")
                with progress_bar("{task.description}") as bar:
                    task = bar.add_task("", total=None)

                    def report(done: int, total: int, what: Words = "") -> None:
                        said = f"Sonata {what}" if what else "Consolidating"
                        bar.update(task, description=said, completed=done, total=total)

                    made: Run | str | None
                    try:
                        made = await runtime.consolidation.consolidate(
                            minutes, seed=seed, priority=Priority.BACKGROUND, report=report,
                            trouble=lambda said: notes.print(escape(str(said)), soft_wrap=True),
                        )  # fmt: skip
                    except RefusedBeforeError as error:
                        made = str(error)
                    looks = DeepLoop(lambda: runtime.memory, runtime.embedder, runtime.learning, seed)
                    return made, await looks.consolidate(report) if deep else None
        finally:
            loaded.close()

    try:
        made, looked = asyncio.run(run())
    except TimeoutError:
        notes.print(GOES_ON, soft_wrap=True)
        if as_json:
            print(json.dumps({"verdict": "unfinished"}))
        return
    except KeyboardInterrupt:
        notes.print(f"\n{GOES_ON}", soft_wrap=True)
        raise
    if as_json:
        entry = run_entry(made) if isinstance(made, Run) else {"verdict": "nothing"} | ({"why": made} if made else {})
        print(json.dumps(entry | ({"deep": asdict(looked)} if looked else {})))
        return
    if isinstance(made, Run):
        console().print(run_table(made))
    else:
        say(made or "Everything that was taught is consolidated already.")
    if looked is not None:
        console().print(deep_table(looked))


def run_table(run: Run) -> Table:
    table = Table(show_header=False, title=escape(f"Consolidation for {run.model} on {run.backend}"))
    table.add_row("verdict", f"{VERDICTS[run.verdict]}: {run.why}" if run.why else VERDICTS[run.verdict])
    table.add_row("revision", str(run.revision) if run.revision else "none: everything stays as it was")
    table.add_row("lessons", f"{len(run.lessons):,}, {len(run.new):,} of them new")
    if run.recall:
        shares = " -> ".join(f"{run.recall[name]:.1%}" for name in ("before", "after") if name in run.recall)
        table.add_row("answered word by word, without lessons", shares)
    if base := run.probe.get("base"):
        words = ", ".join(
            f"{name} {run.probe[name]:.3f} ({run.probe[name] / base - 1:+.2%})"
            for name in ("before", "after")
            if name in run.probe
        )
        table.add_row("perplexity of the probe", f"plain model {base:.3f}, {words}")
    losses = run.steps.get("cross_entropy", ())
    if losses:
        table.add_row("loss", f"{losses[0]:.3f} at first, {losses[-1]:.3f} at the end of {len(losses):,} steps")
    table.add_row("size of the change", f"{run.norm:.3f}, at {run.scale:.0%} of what was trained")
    table.add_row("tokens, seconds", f"{run.tokens:,}, {run.seconds:,.0f}")
    return table


def deep_table(report: DeepReport) -> Table:
    table = Table(show_header=False, title="The deep loop")
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(report.verdicts.items())) or "none"
    table.add_row("answers looked at", f"{report.trajectories:,}, {report.deleted:,} old ones deleted")
    table.add_row(
        "strategies", f"{report.strategies:,} ({verdicts}), {report.merged:,} merged, {report.pruned:,} pruned"
    )
    if report.threshold is not None and report.threshold != report.threshold_before:
        before = "the shipped gate's" if report.threshold_before is None else f"{report.threshold_before:.2f}"
        table.add_row("the gate opens from a score of", f"{report.threshold:.2f}, before {before}")
    for one in report.suggestions:
        table.add_row("to teach", escape(f"{one.question} ({one.count:,} bad answers)"))
    table.add_row("seconds", f"{report.seconds:.1f}")
    return table
