"""The decisions of the gate of lessons: on invented facts (app/lessons/facts) with few and with many lessons stored.

    python -m tests.bench gate [--splits dev common_dev held] [--stored 24 1000] [--threshold T] [--json FILE]

A row for each split and number of stored lessons. "taught" and "para": the share that opens on the right lesson. The
others should stay shut: generic prompts, near misses, questions about facts that are not stored ("other"), paragraphs.
With 24 of a split's lessons there are six draws; templates supply lessons beyond those of the split. "held" must not be
used to choose anything. The probability that a score states is compared with how often it is right.
"""

from __future__ import annotations

import asyncio
import timeit
from itertools import pairwise
from typing import Any

import numpy as np
from rich.table import Table

from app.lessons.shipped_gate import shipped_gate
from app.native_runtime import open_embedder
from app.training.gate_worlds import Compared, Decisions, World, open_world, split_of
from py_core.learning.gate.gate import SHUT, Gate
from tests.bench.reporting import options_of, print_tables, write_figures

KINDS = ("taught", "paraphrase", "generic", "near", "other", "vague", "paragraph")
DRAWS = 6
OPENED_GENERIC = (0.01, 0.02, 0.03, 0.05)
BINS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


def threshold_for(decisions: Decisions, share: float, kind: str = "generic") -> float:
    """The lowest threshold with which at most this share of a kind opens."""
    scores = np.sort(decisions.scores[decisions.kinds == kind])
    return float(scores[int(np.ceil(len(scores) * (1 - share))) - 1]) + 1e-6


async def measured(splits: list[str], sizes: list[int], gate: Gate, threshold: float) -> list[dict[str, Any]]:
    embedder = open_embedder()
    rows = []
    for split in splits:
        own, prompts = split_of(split)  # type: ignore[arg-type]
        world = await open_world(embedder, own, prompts, max(sizes))
        for size in sizes:
            compared = Compared.of(world, world.stores(size, DRAWS))
            decisions = Decisions.of(compared, gate.of_features, SHUT)
            row: dict[str, Any] = {"split": split, "stored": len(compared.groups[0].lessons) and size}
            row |= decisions.shares(threshold)
            row["para_at_generic"] = {
                str(share): decisions.shares(threshold_for(decisions, share))["paraphrase"] for share in OPENED_GENERIC
            }
            row["generic_kinds"] = generic_kinds(compared, decisions, threshold)
            row["calibration"] = calibration(decisions)
            row["missed_candidates"] = missed_candidates(world, size)
            rows.append(row)
    return rows


def generic_kinds(compared: Compared, decisions: Decisions, threshold: float) -> dict[str, float]:
    """The share of each kind of generic prompts that opens."""
    details = np.array([group.detail for group in compared.groups])
    of = {detail: (details == detail) & (decisions.kinds == "generic") for detail in sorted(set(details.tolist()))}
    return {
        detail: round(float((decisions.scores[rows] > threshold).mean()), 4)
        for detail, rows in of.items()
        if rows.any()
    }


def calibration(decisions: Decisions) -> list[tuple[float, float, int]]:
    """Return, by bins of probability: the mean probability, the share that is right, the number."""
    said = 1 / (1 + np.exp(-decisions.scores))
    made = []
    for low, high in pairwise(BINS):
        rows = (said >= low) & (said < high + (high == 1)) & (decisions.kinds != "vague")
        if rows.any():
            made.append(
                (round(float(said[rows].mean()), 3), round(float(decisions.right[rows].mean()), 3), int(rows.sum()))
            )
    return made


def missed_candidates(world: World, size: int) -> dict[str, float]:
    """The share of paraphrases whose lesson is not among the candidates: by the question's vector alone, by both."""
    (stored,) = world.stores(max(size, world.own), 1)
    missed = {"question": 0, "question or question and answer": 0}
    asked = [at for at, prompt in enumerate(world.prompts) if prompt.kind == "paraphrase"]
    for at in asked:
        lesson = world.prompts[at].lesson
        missed["question"] += lesson not in stored[np.argsort(-world.by_question[at, stored])[:8]]
        missed["question or question and answer"] += lesson not in world.candidates(at, stored)
    return {name: round(count / len(asked), 4) for name, count in missed.items()}


async def milliseconds(gate: Gate) -> float:
    """Return the time of the gate for one message and 8 lessons, natively, without embedding: the best of 20 rounds."""
    own, prompts = split_of("dev")
    world = await open_world(open_embedder(), own[:8], prompts[:8])
    return 1000 * min(timeit.repeat(lambda: gate.scores(world.asked[1], world.lessons), number=20, repeat=20)) / 20


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--splits", nargs="+", default=["dev", "common_dev"])
    parser.add_argument("--stored", nargs="+", type=int, default=[24, 1000])
    parser.add_argument("--threshold", type=float, nargs="*")
    options = parser.parse_args()
    gate, reports = shipped_gate(), []
    for threshold in options.threshold or [gate.threshold]:
        rows = asyncio.run(measured(options.splits, options.stored, gate, threshold))
        reports.append(
            {"threshold": threshold, "milliseconds": round(asyncio.run(milliseconds(gate)), 3), "rows": rows}
        )
        show(reports[-1])
    write_figures(options, reports)


def show(report: dict[str, Any]) -> None:
    shown = Table(title=f"open above {report['threshold']:.2f}; {report['milliseconds']} ms for 8 lessons")
    for name in ("split", "stored", *KINDS, *(f"para at {share:.0%}" for share in OPENED_GENERIC)):
        shown.add_column(name)
    for row in report["rows"]:
        at = [f"{share:.3f}" for share in row["para_at_generic"].values()]
        shown.add_row(row["split"], str(row["stored"]), *(f"{row[k]:.3f}" if k in row else "" for k in KINDS), *at)
    print_tables(shown)
    for row in report["rows"]:
        print(row["split"], row["stored"], "open by kind:", row["generic_kinds"])
        print("  probability said, right, prompts:", row["calibration"])
        print("  right lesson not among the 8:", row["missed_candidates"])
