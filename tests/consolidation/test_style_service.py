"""The style of liked answers: its sources, its use, and its deletion together with its sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.consolidation import style_service
from app.consolidation.api import LearningApi
from app.consolidation.idle_learning import IdleLearning
from app.consolidation.idle_loops import idle_loops
from app.consolidation.style_service import ENOUGH, EVERY, STYLE_POLICY, StyleService
from app.generation.assistant import Assistant
from app.generation.learned_answer import AnswerHead
from app.lessons.service import LearningService
from app.native_runtime import open_embedder
from app.protocol import Done
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.runtime import Runtime
from py_core.adapters.head import HeadAdapter
from py_core.adapters.parameters import parameter_layout
from py_core.engine.scheduler import Priority
from py_core.learning.consolidation_job import Texts
from py_core.learning.style import StyleRecipe
from py_core.learning.trajectories import Trajectory
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from tests.runtime import runtime_over

RECIPE = StyleRecipe(rank=2, steps=8, rate=0.2, batch=16, held=16, divergence=0.1, bound=10.0)
TEXTS = Texts(("The moon is far away.", "It rains."), (), ("A quiet morning by the sea.",))
Opened = Callable[..., Awaitable[StyleService]]


@pytest.fixture(scope="module")
def embedder(made_files: dict[str, Path]) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture
async def runtime(
    tiny_path: Path, open_model: Callable[..., Awaitable[Model]], embedder: SentenceEmbedder, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Runtime]:  # fmt: skip
    monkeypatch.setattr(style_service, "MOST_HARM", 1e9)  # a model of random numbers has nothing to be harmed
    model = await open_model(tiny_path)

    runtime = await runtime_over(tmp_path / "memory.sqlite", model=model, embedder=embedder)
    assert runtime.learning is not None
    yield runtime
    await runtime.close()


@pytest.fixture
def learning(runtime: Runtime) -> LearningService:
    assert runtime.learning is not None
    return runtime.learning


@pytest.fixture
def assistant(learning: LearningService) -> Assistant:
    return Assistant(learning.model, max_tokens=4)


@pytest.fixture
async def style(learning: LearningService, assistant: Assistant) -> StyleService:
    return await StyleService.open(learning, assistant.adapters.use_style, RECIPE, TEXTS)


async def like(memory: Memory, count: int = ENOUGH) -> list[Lesson]:
    """Records `count` answers; every second was praised, the others were corrected. Returns the corrections'
    lessons."""
    found = []
    for number in range(count):
        if number % 2:
            trajectory = Trajectory(f"a{number}", f"Say {number}.", "Yes sir.", reason="end", feedback="good")
            memory.trajectories.record(trajectory)
        else:
            found.append(await memory.lessons.keep(Lesson(f"Say {number}.", "Yes sir.", "corrected")))
    return found


async def switch(memory: Memory, on: bool) -> None:
    await memory.policies.set(STYLE_POLICY, on, confidence=1.0, source="user")


async def test_it_is_off_until_the_person_turns_it_on(
    style: StyleService, assistant: Assistant, learning: LearningService
) -> None:
    await like(learning.memory)
    found = await style.learn(priority=Priority.BACKGROUND)
    assert found is not None
    assert found.verdict == "accepted"
    await style.refresh()
    assert (style.is_on, assistant.adapters.style) == (False, 0)
    await switch(learning.memory, True)
    await style.refresh()
    assert assistant.adapters.style
    await switch(learning.memory, False)
    await style.refresh()
    assert assistant.adapters.style == 0


async def test_unseen_answers_decide_and_the_figures_are_told(
    style: StyleService, learning: LearningService, runtime: Runtime
) -> None:
    await like(learning.memory, 2 * ENOUGH)
    await switch(learning.memory, True)
    assert await style.waiting() == 2 * ENOUGH
    found = await style.learn(priority=Priority.BACKGROUND)
    assert found is not None
    assert len(found.held) == 2 * ENOUGH // EVERY
    assert not set(found.held) & set(found.sources)
    assert {source.partition(":")[0] for source in found.sources} == {"lesson", "trajectory"}
    assert found.figures["nll_after"] < found.figures["nll_before"] - style_service.LEAST_GAIN
    assert await style.waiting() == 0
    assert "Learned from 24 answers." in str(found.why)
    assert style.current is not None
    runtime.style = style
    runtime.idle = IdleLearning(
        idle_loops(lambda: runtime.memory, runtime.embedder, runtime.learning, None, runtime.style),
        lambda: learning.memory.policies,
        learning.model.engine.idle_held,
        NeverFree(),
    )
    (told,) = [loop for loop in (await LearningApi(runtime).overview())["loops"] if loop["name"] == "style"]
    assert (told["on"], told["words"]) == (True, [found.why])


class NeverFree:
    async def take(self) -> bool:
        return False

    def release(self) -> None: ...


@pytest.mark.parametrize("bound", ["LEAST_GAIN", "MOST_HARM"])
async def test_a_style_that_helps_too_little_or_harms_is_left_out(
    style: StyleService, assistant: Assistant, learning: LearningService, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(style_service, bound, 1e9 if bound == "LEAST_GAIN" else -1.0)
    await like(learning.memory)
    await switch(learning.memory, True)
    found = await style.learn(priority=Priority.BACKGROUND)
    assert found is not None
    assert (found.verdict, found.weights, assistant.adapters.style) == ("refused", "", 0)
    assert "not used" in str(found.why)
    assert await style.waiting() == 0, "the same answers are not tried again"


async def test_too_few_answers_teach_no_style(style: StyleService, learning: LearningService) -> None:
    await like(learning.memory, ENOUGH - 1)
    memory = learning.memory
    await memory.lessons.keep(Lesson("Where?", "Here.", "taught"))  # a fact is not a style
    await memory.lessons.keep(Lesson("Say 1.", "Yes sir.", "praised"))  # like the praised answer
    assert await style.waiting() == 0
    assert await style.learn() is None
    await memory.lessons.keep(Lesson("Say 101.", "Yes sir.", "praised"))
    assert await style.waiting() == ENOUGH


@pytest.mark.parametrize("what", ["a correction", "a praised answer", "a measured one"])
async def test_what_is_forgotten_takes_the_style_along_at_once(
    style: StyleService, assistant: Assistant, learning: LearningService, tmp_path: Path, what: str
) -> None:
    memory = learning.memory
    taught = await like(memory, ENOUGH + 2)
    await switch(memory, True)
    found = await style.learn(priority=Priority.BACKGROUND)
    assert found is not None
    assert assistant.adapters.style
    if what == "a praised answer":
        await memory.trajectories.delete("a1")
    elif what == "a correction":
        await learning.forget(taught[0].id)
    else:
        kind, _, id = found.held[0].partition(":")
        await memory.store.delete(kind, id)
    assert assistant.adapters.style == 0
    assert await memory.styles.get(learning.base_sha256) is None
    again = await style.learn(priority=Priority.BACKGROUND)
    assert again is not None
    assert len(again.sources) + len(again.held) == ENOUGH + 1
    assert assistant.adapters.style


@pytest.mark.parametrize("change", ["taken back", "switched off", "corrected again"])
async def test_what_is_liked_no_more_silences_the_style(
    style: StyleService, assistant: Assistant, learning: LearningService, change: str
) -> None:
    memory = learning.memory
    taught = await like(memory)
    await switch(memory, True)
    await style.learn(priority=Priority.BACKGROUND)
    assert assistant.adapters.style
    if change == "taken back":
        await memory.trajectories.change("a1", lambda one: replace(one, feedback=""))
    elif change == "switched off":
        await memory.lessons.edit(taught[1].id, on=False)
    else:
        await memory.lessons.edit(taught[1].id, answer="No.")
    await style.refresh()
    assert assistant.adapters.style == 0
    await memory.lessons.keep(Lesson("One more.", "Yes sir.", "corrected"))
    assert await style.waiting() >= ENOUGH, "it is to be learned again"


async def test_answers_come_with_it_but_those_of_lessons_and_of_a_chosen_adapter(
    assistant: Assistant, learning: LearningService
) -> None:
    engine, width = learning.model.engine, learning.model.graph.head_input.width
    used: list[int] = []
    use = engine.use_head_adapter
    engine.use_head_adapter = lambda sequence, number: (used.append(number), use(sequence, number))[1]  # type: ignore[method-assign,func-returns-value]
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((2, width)).astype(np.float32), draw.standard_normal((width, 2)).astype(np.float32)
    number = await engine.put_head_adapter(HeadAdapter(a, 5 * b))
    lesson = await engine.put_head_adapter(HeadAdapter(a, b))

    async def said(**how: object) -> tuple[str, int]:
        assistant.reset()
        used.clear()
        (done,) = [event async for event in assistant.respond("Hello", **how) if isinstance(event, Done)]  # type: ignore[arg-type]
        return done.text, used[0]

    plain = await said()
    assistant.adapters.use_style(number)
    styled = await said()
    assert (plain[1], styled[1]) == (0, number)
    assert plain[0] != styled[0]
    assert (await said(heads=(AnswerHead(lesson, 2),)))[1] == lesson
    layout = parameter_layout(learning.model.graph, 1, 1.0)
    await assistant.use_adapter(layout.adapter(layout.fresh(0), "chosen"))  # a style that changes nothing yet
    assert await said() == plain


async def test_it_belongs_to_the_model_and_to_the_revision_of_its_learned_adapter(
    style: StyleService, assistant: Assistant, learning: LearningService
) -> None:
    await like(learning.memory)
    await switch(learning.memory, True)
    await style.learn(priority=Priority.BACKGROUND)
    assert assistant.adapters.style
    learning.use_revision(3)
    await style.refresh()
    assert assistant.adapters.style == 0
    assert await style.waiting() == ENOUGH, "its states are others: it is to be learned again"
    learning.use_revision(0)
    await style.refresh()
    assert assistant.adapters.style
    style.close()
    assert assistant.adapters.style == 0
