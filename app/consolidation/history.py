"""The history of each loop, and the quality of answers over time: real records, as plain data for plots."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.consolidation.deep_loop import REPORT_POLICY, last_report
from app.consolidation.loop_runs import runs_of
from app.records.memory import Memory
from app.records.revisions import Run
from py_core.learning.trajectories import Trajectory

if TYPE_CHECKING:
    from app.consolidation.views import LearningEvent, LoopName, Period

MOST_EVENTS = 400
"""The most events that are returned, the latest."""
DAYS = 21
"""Answers are grouped by day over at most this many days, and by week over more."""


async def events(memory: Memory, base_sha256: str) -> list[LearningEvent]:
    """The oldest first. base_sha256: of the model whose trainings these are. Raises StoreError."""
    found = [_event("instant", one.created, one.source, 1, one.question) for one in await memory.lessons.all()]
    for run in await memory.revisions.runs(base_sha256) if base_sha256 else []:
        found.append(_event("background", run.created, run.verdict, len(run.new)))
    reviews = [_event("deep", run["created"], run["kind"], run["count"]) for run in runs_of(memory.policies, "deep")]
    found += reviews or _before_runs_were_kept(memory)
    return sorted(found, key=lambda one: one["created"])[-MOST_EVENTS:]


def _before_runs_were_kept(memory: Memory) -> list[LearningEvent]:
    """Return the last review of answers: older versions kept only that."""
    report, policy = last_report(memory), memory.policies.look(REPORT_POLICY)
    if report is None or policy is None:
        return []
    return [_event("deep", policy.changed, "done", report.trajectories)]


def _event(loop: LoopName, created: float, kind: str, count: float, text: str = "") -> LearningEvent:
    return {"created": created, "loop": loop, "kind": kind, "count": int(count), "text": text}


def periods(answers: Sequence[Trajectory]) -> list[Period]:
    """The oldest first. answers: the newest first."""
    if not answers:
        return []
    days = 1 if answers[0].created - answers[-1].created < DAYS * 86400 else 7
    groups = dict[float, list[Trajectory]]()
    for answer in reversed(answers):
        groups.setdefault(_begin(answer.created, days), []).append(answer)
    return [_period(created, days, group) for created, group in sorted(groups.items())]


def _period(created: float, days: int, group: Sequence[Trajectory]) -> Period:
    judged = [one.quality for one in group if one.feedback and one.quality is not None]
    said = Counter(one.feedback for one in group)
    return {
        "created": created, "days": days, "count": len(group),
        "good": said["good"], "bad": said["bad"], "corrected": said["corrected"],
        "helped": sum(bool(one.lesson) and one.feedback not in ("bad", "corrected") for one in group),
        "quality": sum(judged) / len(judged) if judged else None,
    }  # fmt: skip


def _begin(created: float, days: int) -> float:
    """Return the beginning of the day or the week (which starts on Monday), in local time."""
    day = datetime.datetime.fromtimestamp(created).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day - datetime.timedelta(days=day.weekday() if days == 7 else 0)).timestamp()


def run_entry(run: Run) -> dict[str, Any]:
    """As in the JSON of `sonata consolidate`. probe: perplexities. recall: shares of the lessons."""
    names = ("revision", "verdict", "scale", "norm", "tokens", "seconds", "model", "backend")
    entry = {name: getattr(run, name) for name in names}
    return entry | {
        "why": str(run.why), "lessons": len(run.lessons), "new": len(run.new), "probe": dict(run.probe),
        "recall": dict(run.recall),
        "steps": {name: list(values) for name, values in run.steps.items()},
    }  # fmt: skip
