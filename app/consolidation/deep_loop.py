"""The deep loop: looks at all answers together, on demand or every few days, and applies what they show.

    report = await DeepLoop(lambda: memory, lambda: embedder, learning).consolidate()

It distils trajectories into strategies (learning/reasoning_bank.py): questions that are repeatedly answered badly
are suggested as lessons. The gate of lessons opens earlier or later, depending on how its answers were judged. Then old
trajectories are deleted, whose sums stay in their strategies, and the store is compacted. Routes change only by the
person's feedback (feedback.py).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from app.consolidation.loop_runs import note_run
from app.lessons.service import THRESHOLD_POLICY, LearningService
from app.records.memory import Memory
from py_core.learning.gate.threshold import Evidence, fitted_threshold
from py_core.learning.reasoning_bank import DAY_SECONDS, GOOD, Bank, Experience, archive, distil
from py_core.learning.strategies import Strategy
from py_core.learning.trajectories import Trajectory
from py_core.routing.embedder import Embedder

UNTIL_POLICY = "learning.deep.until"
"""A run has seen the answers up to this time: seconds since 1970."""
REPORT_POLICY = "learning.deep.report"
"""The policy with the report of the last run: a DeepReport as JSON."""
KEPT_DAYS = 30.0
"""A trajectory without feedback is deleted after this time if its strategy stays."""
REPEATED = 2
"""The number of bad answers to similar messages after which a lesson is suggested."""
MOST_SUGGESTIONS = 10
EMBEDDED_TOGETHER = 16
NEARLY = 1.5
"""The gate was nearly open if a lesson's score was at most this far below its threshold."""


@dataclass(frozen=True)
class Suggestion:
    """A question to teach: `count` messages like it were answered badly."""

    question: str
    count: int


@dataclass(frozen=True)
class DeepReport:
    """The results of a run. trajectories: how many it saw. verdicts: how many strategies are kept, by verdict. deleted:
    how many trajectories."""

    trajectories: int
    strategies: int
    verdicts: dict[str, int]
    merged: int
    pruned: int
    threshold_before: float | None
    threshold: float | None
    suggestions: tuple[Suggestion, ...]
    deleted: int
    seconds: float


class DeepLoop:
    """One for a memory. It works in steps of the memory's background, so that answers do not wait for it.

    Without an embedder it leaves out answers whose message has no vector; without learning it moves no gate.
    """

    def __init__(
        self, memory: Callable[[], Memory], embedder: Callable[[], Embedder | None], learning: LearningService | None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self._opened, self._embedder, self._learning, self._seed = memory, embedder, learning, seed
        self._running = asyncio.Lock()

    async def waiting(self) -> int:
        """Return the number of answers that no run has seen yet."""
        memory = self._memory
        return len(await memory.trajectories.all(since=_until(memory)))

    async def is_begun(self) -> bool:
        """Return False: an interrupted run starts again from the beginning, since it takes only seconds."""
        return False

    async def run(self, report: Callable[[int, int], None]) -> None:
        """See `IdleWork.run`."""
        await self.consolidate(report)

    async def consolidate(self, report: Callable[[int, int], None] = lambda done, total: None) -> DeepReport:
        """Do it all, once. Raises StoreError."""
        async with self._running:
            begin, memory = time.perf_counter(), self._memory
            now = memory.store.clock()
            trajectories = await memory.trajectories.all()
            report(0, 5)
            experiences = await self._experiences(memory, trajectories)
            report(1, 5)
            async with memory.background.step():
                bank = distil(experiences, await self._earlier(memory, experiences), now, self._seed)
            report(2, 5)
            before, threshold = await self._fit_gate(memory, trajectories)
            report(3, 5)
            suggestions = await self._suggestions(bank)
            report(4, 5)
            deleted = await self._keep(memory, bank, {one.id: one for one in trajectories}, now)
            deleted += await memory.trajectories.retain()
            verdicts: dict[str, int] = {}
            for strategy in bank.strategies:
                verdicts[strategy.verdict] = verdicts.get(strategy.verdict, 0) + 1
            done = DeepReport(
                len(trajectories), len(bank.strategies), verdicts, bank.merged, len(bank.pruned), before, threshold,
                suggestions, deleted, time.perf_counter() - begin,
            )  # fmt: skip
            newest = max((one.created for one in trajectories), default=_until(memory))
            # A moment later, or the newest answer would be new again.
            await memory.policies.set(UNTIL_POLICY, math.nextafter(newest, math.inf), confidence=1.0, source="deep")
            await memory.policies.set(REPORT_POLICY, json.dumps(asdict(done)), confidence=1.0, source="deep")
            await note_run(memory.policies, "deep", now, "done", len(trajectories))
            await memory.store.compact()
            report(5, 5)
            return done

    # ---- its steps ----

    async def _experiences(self, memory: Memory, trajectories: Sequence[Trajectory]) -> list[Experience]:
        """Return the trajectories whose message has a vector, or gets one."""
        embedder = self._embedder()
        lacking = [one for one in trajectories if one.vector is None and one.asked.strip()]
        vectors = {one.id: one.vector for one in trajectories if one.vector is not None}
        for start in range(0, len(lacking) if embedder else 0, EMBEDDED_TOGETHER):
            part = lacking[start : start + EMBEDDED_TOGETHER]
            async with memory.background.step():
                assert embedder is not None
                made = await embedder.embed([one.asked for one in part])
                vectors |= zip((one.id for one in part), made, strict=True)
        lengths = {len(vector) for vector in vectors.values()}
        return [
            Experience(one.id, one.asked, vectors[one.id], one.agent, one.quality, bool(one.feedback), one.created)
            for one in trajectories
            if one.id in vectors and len(vectors[one.id]) == max(lengths)
        ]

    async def _earlier(self, memory: Memory, experiences: Sequence[Experience]) -> list[Strategy]:
        earlier = await memory.strategies.all()
        length = len(experiences[0].vector) if experiences else None
        return [one for one in earlier if length in (None, len(one.vector))]

    async def _fit_gate(self, memory: Memory, trajectories: Sequence[Trajectory]) -> tuple[float | None, float | None]:
        """Return the threshold before and after; None without learning. The user's own choice stays."""
        learning = self._learning
        if learning is None:
            return None, None
        before, shipped = learning.threshold, learning.gate.threshold
        policy = memory.policies.look(THRESHOLD_POLICY)
        evidence = [found for one in trajectories if one.feedback and (found := await self._evidence(one, before))]
        if not evidence or (policy is not None and policy.source == "user"):
            return before, before
        threshold, confidence = fitted_threshold(shipped, evidence)
        await memory.policies.set(
            THRESHOLD_POLICY, threshold, confidence=confidence, source="deep", observations=len(evidence)
        )
        return before, threshold

    async def _evidence(self, one: Trajectory, threshold: float) -> Evidence | None:
        """Return the evidence about the gate that a judged answer gives."""
        learning, recalled = self._learning, one.route.get("recalled")
        assert learning is not None
        if one.lesson and isinstance(recalled, int | float) and 0 < recalled < 1:
            lesson = await self._memory.lessons.get(one.lesson)
            taught = {effect["id"] for effect in one.effects if effect["kind"] == "taught"}
            # The person gave another answer to the same question: the lesson was wrong, not the gate.
            was_right = one.feedback == "good" or (lesson is not None and lesson.replaced_by in taught)
            return Evidence(math.log(recalled / (1 - recalled)), was_right)
        if not one.lesson and one.feedback != "good":
            async with self._memory.background.step():
                considered = await learning.look(one.asked)
            known = [each for each in considered if each.lesson.created < one.created]
            if known and threshold - NEARLY < known[0].score <= threshold:
                return Evidence(known[0].score, True, 0.5)
        return None

    async def _suggestions(self, bank: Bank) -> tuple[Suggestion, ...]:
        """Return suggestions for the failures that no lesson answers yet."""
        found = list[Suggestion]()
        learning = self._learning
        for strategy in bank.strategies:
            bad = [one for one in bank.members[strategy.id] if one.quality is not None and one.quality < GOOD]
            if strategy.verdict != "failure" or len(bad) < REPEATED:
                continue
            question = max(bad, key=lambda one: (float(one.vector @ strategy.vector), one.id)).asked
            if learning is not None:
                async with self._memory.background.step():
                    considered = await learning.look(question)
                if considered and considered[0].score > learning.threshold:
                    continue
            found.append(Suggestion(question, len(bad)))
        found.sort(key=lambda one: -one.count)
        return tuple(found[:MOST_SUGGESTIONS])

    async def _keep(self, memory: Memory, bank: Bank, trajectories: dict[str, Trajectory], now: float) -> int:
        """Store the strategies and delete old trajectories, all or nothing. Returns how many were deleted."""
        kept, gone = list[Strategy](), list[str]()
        for strategy in bank.strategies:
            old = [
                one
                for one in bank.members[strategy.id]
                if now - one.created > KEPT_DAYS * DAY_SECONDS and not trajectories[one.id].feedback
            ]
            kept.append(archive(strategy, old, now) if old else strategy)
            gone += [one.id for one in old]
        async with memory.store.transaction() as transaction:
            memory.strategies.replace_in(transaction, kept)
            memory.trajectories.set_aside_in(transaction, [trajectories[id] for id in gone])
        return len(gone)

    @property
    def _memory(self) -> Memory:
        return self._opened()


def last_report(memory: Memory) -> DeepReport | None:
    """Return the report of the last run, if there was one."""
    policy = memory.policies.look(REPORT_POLICY)
    if policy is None or not isinstance(policy.value, str):
        return None
    try:
        values = json.loads(policy.value)
        known = {field.name: values[field.name] for field in fields(DeepReport)}  # earlier versions stored more
        return DeepReport(**{**known, "suggestions": tuple(Suggestion(**one) for one in values["suggestions"])})
    except (ValueError, TypeError, KeyError):
        return None


def _until(memory: Memory) -> float:
    policy = memory.policies.look(UNTIL_POLICY)
    return policy.value if policy is not None and isinstance(policy.value, float) else 0.0
