"""The log of all answers: queries for poor answers, similar errors, latency spikes, percentiles and trends."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from py_core.learning.trajectories import Trajectories, Trajectory
from py_core.store.rows import Range

TOTAL = "total"
PERCENTILES = (50, 90, 99)
HOUR = 3600.0
ENOUGH = 20  # the fewest latencies for calling one unusual


@dataclass(frozen=True, slots=True)
class Spike:
    """A stage that took `ms`; `usual_ms` (the median) was expected."""

    entry: Trajectory
    stage: str
    ms: float
    usual_ms: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Median milliseconds of a stage in each span of time that has requests: (begin of the span, ms), oldest first.

    change: of the last span against the first, 0.1 for 10% slower.
    """

    stage: str
    medians: tuple[tuple[float, float], ...]

    @property
    def change(self) -> float:
        first, last = self.medians[0][1], self.medians[-1][1]
        return last / first - 1.0 if first > 0 else 0.0


class AnswerLog:
    """Answers queries from all records of answers, including those that still wait to be written."""

    def __init__(self, trajectories: Trajectories) -> None:
        self._trajectories = trajectories

    async def entries(self, *, since: float | None = None, limit: int | None = None) -> list[Trajectory]:
        """The entries, newest first."""
        return await self._trajectories.find(since=since, limit=limit)

    async def poor(self, rating: float = 0.5, limit: int | None = None) -> list[Trajectory]:
        """Entries with a rating below `rating`, newest first."""
        return await self._trajectories.find(rating=Range(high=math.nextafter(rating, -math.inf)), limit=limit)

    async def similar_errors(self, error: str, k: int = 10) -> list[tuple[Trajectory, float]]:
        """Failed requests, with the share of words that their errors have in common with this one; the highest
        first."""
        wanted = _words(error)
        scored = [
            (one, _overlap(wanted, _words(one.error or ""))) for one in await self._trajectories.find(failed=True)
        ]
        scored.sort(key=lambda pair: pair[1], reverse=True)
        return [(entry, score) for entry, score in scored[:k] if score > 0]

    async def spikes(self, seconds: float = HOUR, factor: float = 3.0) -> list[Spike]:
        """Stages of the last hour that took over `factor` times their median before it, the worst first.

        If the log before it has too few requests, the median is that of all requests.
        """
        begin = self._trajectories.store.clock() - seconds
        entries = await self.entries()
        found: list[Spike] = []
        before = _latencies([entry for entry in entries if entry.created < begin])
        for stage, all_ms in _latencies(entries).items():
            known = before.get(stage, [])
            usual_of = known if len(known) >= ENOUGH else all_ms
            if len(usual_of) < ENOUGH:
                continue
            usual = float(np.median(usual_of))
            recent = [entry for entry in entries if entry.created >= begin]
            found += [
                Spike(entry, stage, _stages(entry)[stage], usual)
                for entry in recent
                if _stages(entry).get(stage, 0.0) > factor * usual
            ]
        return sorted(found, key=lambda spike: spike.ms / max(spike.usual_ms, 1e-9), reverse=True)

    async def percentiles(self, since: float | None = None) -> dict[str, dict[int, float]]:
        """Stage -> {50: ms, 90: ms, 99: ms}, and the same for the TOTAL."""
        latencies = _latencies(await self.entries(since=since))
        return {
            stage: {p: float(value) for p, value in zip(PERCENTILES, np.percentile(ms, PERCENTILES), strict=True)}
            for stage, ms in latencies.items()
        }

    async def trends(self, span: float = HOUR, since: float | None = None) -> dict[str, Trend]:
        """Each stage's median in every `span` seconds."""
        spans: dict[float, list[Trajectory]] = {}
        for entry in await self.entries(since=since):
            spans.setdefault(entry.created // span * span, []).append(entry)
        medians: dict[str, list[tuple[float, float]]] = {}
        for begin in sorted(spans):
            for stage, ms in _latencies(spans[begin]).items():
                medians.setdefault(stage, []).append((begin, float(np.median(ms))))
        return {stage: Trend(stage, tuple(values)) for stage, values in medians.items()}


def _stages(entry: Trajectory) -> Mapping[str, float]:
    return {**entry.stages, TOTAL: entry.total_ms} if entry.stages else {}


def _latencies(entries: list[Trajectory]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for entry in entries:
        for stage, ms in _stages(entry).items():
            found.setdefault(stage, []).append(ms)
    return found


def _words(text: str) -> frozenset[str]:
    """The words of an error. Numbers and addresses differ from error to error; words do not."""
    return frozenset(re.findall(r"[^\W\d_]+", text.lower()))


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0
