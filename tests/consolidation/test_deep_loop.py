"""The deep loop over recorded answers, with the real router, embedder, gate and SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app import native_runtime
from app.consolidation.deep_loop import DeepLoop, last_report
from app.lessons.feedback import Feedback
from app.lessons.service import THRESHOLD_POLICY
from app.records.memory import Memory
from app.routing.factory import RouterParts
from app.runtime import Runtime
from py_core.learning.trajectories import Trajectory
from py_core.loading import Model
from tests.runtime import runtime_over

OpenModel = Callable[..., Awaitable[Model]]
DAY = 86400.0
CRASHES = [
    "why does my page crash when I scroll",
    "my page crashes whenever I scroll down, why?",
    "the page crashes if I scroll",
    "why does the page crash on scrolling",
]
TIDES = ["when is high tide in Gullhaven", "what time is high tide at Gullhaven", "high tide at Gullhaven, when?"]


@pytest.fixture(scope="module")
def parts(fast_routing: None) -> RouterParts:
    return native_runtime.native_router_parts()


@pytest.fixture
async def runtime(parts: RouterParts, tiny_path: Path, open_model: OpenModel, tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = await runtime_over(tmp_path / "memory.sqlite", parts, await open_model(tiny_path))
    yield runtime
    await runtime.close()


@pytest.fixture
def memory(runtime: Runtime) -> Memory:
    return runtime.memory


async def answered(runtime: Runtime, text: str, quality: float | None, days: float = 0.0, **more: object) -> str:
    """Record an answer as it would be routed; returns its id."""
    assert runtime.routing is not None
    routed = await runtime.routing.route(text)
    patterns = [n.pattern_id for n in routed.decision.neighbours if n.agent == routed.agent.id]
    made = Trajectory(
        routed.id, text, "An answer.", agent=routed.agent.id, quality=quality, vector=routed.vector,
        route={"why": "examples", "confidence": 0.9, "patterns": patterns},
        created=runtime.memory.store.clock() - days * DAY,
    )  # fmt: skip
    runtime.memory.trajectories.record(replace(made, **more))
    return routed.id


async def test_failures_become_suggestions_and_no_route_changes_unless_it_was_judged(
    runtime: Runtime, memory: Memory
) -> None:
    assert runtime.routing is not None
    assert runtime.learning is not None
    router = runtime.routing.router
    for text in CRASHES:
        await answered(runtime, text, 0.9)
    for text in TIDES:
        await answered(runtime, text, 0.2, vector=None)  # as if the router was missing
    deep = DeepLoop(lambda: runtime.memory, runtime.embedder, runtime.learning)
    assert await deep.waiting() == 7
    deciding = {id for one in await memory.trajectories.all() for id in one.route["patterns"]}
    assert deciding
    before = {id: router.weight(id) for id in deciding}

    progress: list[tuple[int, int]] = []
    report = await deep.consolidate(lambda done, total: progress.append((done, total)))
    assert progress == [(step, 5) for step in range(6)]
    assert report.trajectories == 7
    kept = await memory.strategies.all()
    (crash,) = (one for one in kept if one.verdict == "success")
    (tide,) = (one for one in kept if one.verdict == "failure")
    assert (crash.count, crash.agent, crash.examples[0] in CRASHES) == (4, "debugger", True)
    assert (tide.count, set(tide.examples) <= set(TIDES)) == (3, True)
    (suggestion,) = report.suggestions
    assert suggestion.question in TIDES
    assert suggestion.count == 3
    assert {id: router.weight(id) for id in deciding} == before
    assert last_report(memory) == report

    assert await deep.waiting() == 0
    await deep.consolidate()
    assert [one.id for one in await memory.strategies.all()] == [one.id for one in kept]
    await runtime.learning.teach("When is high tide in Gullhaven?", "High tide in Gullhaven is at 4:10.")
    assert (await deep.consolidate()).suggestions == ()


async def test_old_answers_go_and_stay_in_the_strategy(runtime: Runtime, memory: Memory) -> None:
    old = [await answered(runtime, text, 0.9, days=40) for text in CRASHES]
    judged = await answered(runtime, CRASHES[0], 1.0, days=40, feedback="good")
    fresh = await answered(runtime, CRASHES[1], 0.9)
    deep = DeepLoop(lambda: runtime.memory, runtime.embedder, runtime.learning)
    report = await deep.consolidate()
    assert report.deleted == 4
    assert {one.id for one in await memory.trajectories.all()} == {judged, fresh}
    assert {one.id for one in await memory.log.entries() if one.answered} == {judged, fresh}
    assert {one.id for one in await memory.log.entries()} == {*old, judged, fresh}
    (strategy,) = await memory.strategies.all()
    assert (strategy.count, strategy.archived[0], strategy.verdict) == (6, 4, "success")
    await deep.consolidate()
    (after,) = await memory.strategies.all()
    assert (after.id, after.count, after.archived) == (strategy.id, 6, strategy.archived)


async def test_what_is_said_of_lessons_moves_the_gate_but_not_against_the_user(
    runtime: Runtime, memory: Memory
) -> None:
    assert runtime.learning is not None
    learning, feedback, deep = (
        runtime.learning,
        Feedback(runtime),
        DeepLoop(lambda: runtime.memory, runtime.embedder, runtime.learning),
    )
    shipped = learning.gate.threshold
    lesson = (await feedback.remember("my dentist is Dr. Quill")).lesson
    for number in range(6):
        id = await answered(runtime, f"Where did I park? {number}", 0.5, lesson=lesson.id, route={"recalled": 0.6})
        await feedback.bad(id)
    report = await deep.consolidate()
    assert report.threshold_before == shipped
    assert report.threshold is not None
    assert report.threshold > 0.4  # the score of the wrong answer
    assert learning.threshold == report.threshold
    policy = memory.policies.look(THRESHOLD_POLICY)
    assert policy is not None
    assert policy.observations > 1
    assert policy is not None
    assert (policy.source, 0.5 < policy.confidence < 1) == ("deep", True)
    await memory.policies.edit(THRESHOLD_POLICY, 1.5)
    assert (await deep.consolidate()).threshold == 1.5


async def test_it_waits_for_answers_and_an_empty_memory_is_no_trouble(runtime: Runtime, memory: Memory) -> None:
    deep = DeepLoop(lambda: runtime.memory, runtime.embedder, runtime.learning)
    report = await deep.consolidate()
    assert (report.trajectories, report.strategies, report.suggestions) == (0, 0, ())
    await answered(runtime, CRASHES[0], None)
    progress: list[int] = []
    seen = asyncio.Event()

    def note(done: int, total: int) -> None:
        progress.append(done)
        if done:
            seen.set()

    with memory.background.paused():
        running = asyncio.ensure_future(deep.consolidate(note))
        await seen.wait()
        for _ in range(5):
            await memory.store.count()  # in the same time it would have continued
        assert progress == [0, 1]
    assert (await running).trajectories == 1
