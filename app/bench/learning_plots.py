"""The plots of the benches of learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.bench.plots import Line, Plot, svg_of

SHARE = "share"


def write_plots(path: Path, plots: Sequence[Plot]) -> None:
    """Writes them as one SVG file. Raises OSError."""
    path.write_text(svg_of(plots), encoding="utf-8")


def learning_plots(report: Mapping[str, Any]) -> list[Plot]:
    """Plots `measure_learning`: recall, and prompts mistaken for a taught one, by the number of stored facts."""

    def line(name: str, kind: str, share: str) -> Line:
        return Line(name, [(int(size), found[kind][share]) for size, found in report["stored"].items()])

    of = f"{report['facts']} facts of {report['split']}"
    plots = [
        Plot(
            f"Answered word by word, {of}", "lessons stored", SHARE,
            (line("taught question", "questions", "right"), line("other words", "paraphrases", "right")), 0, 1,
        ),
        Plot(
            "A lesson is found, though none answers", "lessons stored", SHARE,
            (line("generic prompts", "generic", "opened"), line("one word away", "near", "opened")), 0,
        ),
    ]  # fmt: skip
    if "consolidation" in report:
        plots.append(loss_plot(report["consolidation"]["run"]["steps"]))
    return plots


def loss_plot(steps: Mapping[str, Sequence[float]]) -> Plot:
    """steps: those of a run (app/records/revisions.py)."""
    lines = [
        Line(words, list(enumerate(steps[name], 1)))
        for name, words in (("cross_entropy", "answers"), ("divergence", "distance to the base"))
    ]
    return Plot("Loss", "step", "nats a token", lines, 0)
