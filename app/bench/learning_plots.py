"""What the benches of learning plot, of what they measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.bench.plots import Line, Plot, svg_of

SHARE = "share"


def write_plots(path: Path, plots: Sequence[Plot]) -> None:
    """As one SVG file. Raises OSError."""
    path.write_text(svg_of(plots), encoding="utf-8")


def learning_plots(report: Mapping[str, Any]) -> list[Plot]:
    """Of `measure_learning`: what is recalled, and what is mistaken for something taught, by how much is stored."""

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
    """steps: of a run (py_core/memory/revisions.py)."""
    lines = [
        Line(words, list(enumerate(steps[name], 1)))
        for name, words in (("cross_entropy", "answers"), ("divergence", "distance to the base"))
    ]
    return Plot("Loss", "step", "nats a token", lines, 0)


def training_plots(
    steps: Mapping[str, Sequence[float]], looks: Sequence[Mapping[str, float]], base: float
) -> list[Plot]:
    """Of a training, and of looks at it on the way: "step", "perplexity" of the probe, shares "taught" and
    "paraphrases". base: the plain model's perplexity."""
    at = [look["step"] for look in looks]

    def line(words: str, name: str) -> Line:
        return Line(words, [(look["step"], look[name]) for look in looks])

    return [
        loss_plot(steps),
        Plot(
            "Perplexity of texts never trained on", "step", "perplexity",
            (line("with the adapter", "perplexity"), Line("plain model", [(step, base) for step in at])),
        ),
        Plot(
            "Answered word by word, without lessons", "step", SHARE,
            (line("taught question", "taught"), line("other words", "paraphrases")), 0, 1,
        ),
    ]  # fmt: skip
