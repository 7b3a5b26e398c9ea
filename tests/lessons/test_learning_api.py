"""The page's calls about learning: with a tiny model, the real embedder and gate, and SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.consolidation.api import LearningApi
from app.consolidation.idle_learning import IdleLearning
from app.consolidation.idle_loops import idle_loops
from app.consolidation.one_learner import FileLock
from app.generation.assistant import Assistant
from app.lessons.imprints import LessonError
from app.records.revisions import Run
from app.runtime import Learner, Runtime, RuntimeConfig
from app.stage import State
from py_core.learning.trajectories import Trajectory
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError
from py_core.store.sqlite import SQLiteRows
from tests.runtime import BASE
from tests.tiny.adapters import drawn

pytestmark = pytest.mark.asyncio

FERRY, HERON = "What is the ferry to Sandholm called?", "It is called the Grey Heron."
BAKERY, FIVE = "When does the bakery at the harbour open?", "At five in the morning."


@pytest.fixture
async def learner(tiny_path: Path, open_model: Callable[..., Awaitable[Model]]) -> Model:
    return await open_model(tiny_path)


@pytest.fixture
async def api(runtime: Runtime) -> LearningApi:
    return LearningApi(runtime)


async def questions(api: LearningApi, **wanted) -> list[str]:
    return [item["question"] for item in (await api.lessons(**wanted))["items"]]


async def test_what_is_taught_is_told_with_how_sure_the_model_is_and_is_found_again(api: LearningApi) -> None:
    await api.teach(BAKERY, FIVE)
    taught = await api.teach(FERRY, HERON)
    assert (taught["lesson"]["question"], taught["lesson"]["answer"]) == (FERRY, HERON)
    assert taught["nllAfter"] < 0.5 < taught["nllBefore"]
    assert taught["ms"] > 0
    assert await questions(api) == [FERRY, BAKERY], "the newest first"
    assert await questions(api, search="heron") == [FERRY], "by a word of the answer"
    assert (await questions(api, search="a boat to an island"))[0] == FERRY, "by its meaning"
    assert await questions(api, limit=1, offset=1) == [BAKERY]
    with pytest.raises(LessonError, match="answer is empty"):
        await api.teach(FERRY, "  ")


async def test_an_answer_that_was_replaced_is_history_until_the_newer_one_is_undone(api: LearningApi) -> None:
    first = await api.teach(FERRY, "It is called the Blue Whale.")
    second = await api.teach(FERRY, HERON)
    assert second["replaced"]["id"] == first["lesson"]["id"]
    assert [item["answer"] for item in (await api.lessons())["items"]] == [HERON]
    assert [item["answer"] for item in (await api.lessons("history"))["items"]] == ["It is called the Blue Whale."]
    await api.undo_teaching(second["lesson"]["id"])
    assert [item["answer"] for item in (await api.lessons())["items"]] == ["It is called the Blue Whale."]


async def test_a_lesson_that_is_forgotten_is_gone_and_can_be_restored_as_it_was(
    api: LearningApi, runtime: Runtime
) -> None:
    assert runtime.learning is not None
    taught = await api.teach(FERRY, HERON)
    id = taught["lesson"]["id"]
    assert await runtime.learning.recall(FERRY)
    await api.forget([id])
    assert await runtime.learning.recall(FERRY) is None
    assert await api.lesson(id) is None
    await api.restore([id])
    assert await api.lesson(id) == taught["lesson"]
    recalled = await runtime.learning.recall(FERRY)
    assert recalled is not None
    assert recalled.lesson.id == id
    await api.forget([id])
    await runtime.forget()  # everything
    await api.restore([id])
    assert await api.lesson(id) is None


async def test_what_is_restored_after_its_question_was_taught_anew_is_history_of_the_newer_answer(
    api: LearningApi, runtime: Runtime
) -> None:
    assert runtime.learning is not None
    id = (await api.teach(FERRY, "It is called the Tern."))["lesson"]["id"]
    await api.forget([id])
    await api.teach(FERRY, HERON)
    assert await api.restore([id]) == 1
    assert [item["answer"] for item in (await api.lessons())["items"]] == [HERON]
    assert [item["id"] for item in (await api.lessons("history"))["items"]] == [id]
    recalled = await runtime.learning.recall(FERRY)
    assert recalled is not None
    assert recalled.lesson.answer == HERON
    await api.forget([id])
    assert await api.restore([id]) == 0, "it was history before"


async def test_a_lesson_is_edited_and_switched_off(api: LearningApi, runtime: Runtime) -> None:
    assert runtime.learning is not None
    id = (await api.teach(FERRY, HERON))["lesson"]["id"]
    edited = (await api.edit_lesson(id, FERRY, "It is called the Tern."))["lesson"]
    assert [item["answer"] for item in (await api.lessons())["items"]] == ["It is called the Tern."]
    assert await questions(api, filter="off") == []
    await api.switch_lesson(edited["id"], False)
    assert await questions(api, filter="off") == [FERRY]
    assert await runtime.learning.recall(FERRY) is None
    with pytest.raises(StoreError, match="forgotten"):
        await api.edit_lesson("nobody", FERRY, HERON)


async def test_a_loop_that_is_switched_off_gives_no_lesson(api: LearningApi, runtime: Runtime) -> None:
    assert runtime.learning is not None
    await api.teach(FERRY, HERON)
    (instant,) = [loop for loop in (await api.overview())["loops"] if loop["name"] == "instant"]
    assert instant["on"]
    assert list(map(str, instant["words"])) == ["1 fact in use; 0 answers came from what you taught."]
    await api.set_loop("instant", False)
    assert not (await api.overview())["loops"][0]["on"]
    assert await runtime.learning.recall(FERRY) is None
    await api.set_loop("instant", True)
    assert await runtime.learning.recall(FERRY)


async def test_the_overview_has_what_plots_show(api: LearningApi, runtime: Runtime) -> None:
    taught = await api.teach(FERRY, HERON)
    count = 61
    for number in range(count):
        quality = number / count
        made = Trajectory(f"t{number}", "One", "Two", feedback="corrected", quality=quality, created=1e9 + number)
        runtime.memory.trajectories.record(made)
    runtime.memory.trajectories.record(replace(made, id="unjudged", feedback="", quality=0.8, created=2e9))
    overview = await api.overview()
    (lesson,) = overview["lessons"]
    assert lesson["question"] == FERRY
    assert lesson["nllAfter"] == pytest.approx(taught["nllAfter"], abs=1e-3)
    first, last = overview["answers"]
    assert (first["days"], first["count"], last["count"]) == (7, count, 1)
    assert first["quality"] == pytest.approx((count - 1) / 2 / count)
    assert last["quality"] is None
    assert [event["kind"] for event in overview["events"]] == ["taught"]


async def test_what_is_said_of_an_answer_is_told_again_and_a_better_one_can_be_taken_back(
    api: LearningApi, runtime: Runtime
) -> None:
    runtime.memory.trajectories.record(Trajectory("a1", FERRY, "I do not know."))
    runtime.memory.trajectories.record(Trajectory("a2", BAKERY, "At noon."))
    await api.good("a1")
    assert await api.opinions(["a1", "a2", "nobody"]) == {"a1": "good"}
    await api.bad("a2")
    await api.take_back("a1")
    assert await api.opinions(["a1", "a2"]) == {"a2": "bad"}
    taught = await api.should_have_said("a1", FERRY, HERON)
    assert taught["lesson"]["source"] == "corrected"
    assert await questions(api) == [FERRY]
    assert await api.opinions(["a1"]) == {"a1": "corrected"}
    await api.take_back("a1")
    assert await questions(api) == []


async def test_a_lesson_that_is_wrong_again_and_again_is_switched_off(api: LearningApi, runtime: Runtime) -> None:
    id = (await api.teach(FERRY, HERON))["lesson"]["id"]
    off = []
    for number in range(3):
        runtime.memory.trajectories.record(Trajectory(f"a{number}", FERRY, HERON, lesson=id))
        off.append((await api.bad(f"a{number}"))["off"])
    assert off.count(True) == 1
    assert not off[0]
    assert await questions(api, filter="off") == [FERRY]


async def test_what_learns_in_pauses_is_paused_goes_on_and_runs_when_it_is_asked_to(
    api: LearningApi, runtime: Runtime, tmp_path: Path
) -> None:
    assert (await api.overview())["idle"] is None
    with pytest.raises(EmbedderError, match="still loading"):
        await api.pause()
    loops = [
        loop
        for loop in idle_loops(lambda: runtime.memory, runtime.embedder, runtime.learning, None)
        if loop.name == "deep"
    ]
    runtime.idle = IdleLearning(
        loops,
        lambda: runtime.memory.policies,
        nullcontext,
        FileLock(tmp_path / "lock"),
        lambda: runtime.changed(),
        3600,
    )
    runtime.idle.start()
    runtime.memory.trajectories.record(Trajectory("a1", FERRY, HERON, quality=1.0))

    changed = asyncio.Event()
    runtime.changed = changed.set

    async def until(is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The overview, once the condition holds."""
        while True:
            changed.clear()
            overview = await api.overview()
            if is_so(overview):
                return overview
            await changed.wait()

    await api.pause()
    deep = (await until(lambda told: told["idle"].state == "paused"))["loops"][2]
    assert (deep["name"], deep["on"], deep["runs"], deep["words"]) == ("deep", True, True, [])
    await api.learn_now("deep")
    deep = (await until(lambda told: told["loops"][2]["words"]))["loops"][2]
    assert str(deep["words"][0]).startswith("Last time it looked at 1 answer, and kept what ")
    await api.set_loop("deep", False)
    assert not (await until(lambda told: told["idle"].state == "off"))["loops"][2]["on"]


async def test_trainings_are_told_as_they_were_decided(api: LearningApi, runtime: Runtime) -> None:
    why = "It gives 100% of the answers."
    run = Run(
        BASE, "refused", why, lessons=("a",), probe={"base": 21.0, "after": 21.5}, recall={"after": 1.0},
        steps={"cross_entropy": [3.0, 0.5]}, norm=2.5, tokens=900, seconds=4.0,
    )  # fmt: skip
    await runtime.memory.revisions.keep(run, None)
    await runtime.memory.revisions.keep(replace(run, id="other", base_sha256="11" * 32), None)
    (told,) = (await api.overview())["trainings"]
    assert told["created"] > 0
    del told["created"]
    assert told == {
        "verdict": "refused", "why": why, "norm": 2.5, "tokens": 900, "seconds": 4.0, "losses": [3.0, 0.5],
        "probe": {"base": 21.0, "after": 21.5}, "recall": {"after": 1.0},
    }  # fmt: skip


async def test_what_the_last_training_had_is_told_and_that_a_chosen_adapter_leaves_it_out(
    runtime: Runtime, tmp_path: Path
) -> None:
    assert runtime.learning is not None
    assistant = Assistant(runtime.learning.model)
    api = LearningApi(runtime, lambda: assistant.leaves_out)
    await runtime.memory.revisions.keep(Run(BASE, "refused", "It was too much.", lessons=("a",)), None)
    lock, embedder = FileLock(tmp_path / "lock"), runtime.learning.embedder
    model = runtime.learning.model
    await runtime.use_model(
        Learner(model, BASE, assistant.adapters, only_one=lock, idle_seconds=3600, embedder=lambda: embedder)
    )

    async def said() -> str:
        (words,) = [loop["words"] for loop in (await api.overview())["loops"] if loop["name"] == "background"]
        return " ".join(map(str, words))

    before = "The last training used 1 fact that you taught. It was too much."
    assert await said() == before
    graph = runtime.learning.model.graph
    await assistant.adapters.use_learned(drawn(graph, 1, rank=8))
    await assistant.use_adapter(drawn(graph, 2, rank=16))
    assert await said() == f"{before} {assistant.leaves_out}"
    assert "too large to be used together" in await said()


async def test_without_a_model_lessons_are_seen_and_forgotten_but_nothing_can_be_taught(tmp_path: Path) -> None:
    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(tmp_path / "memory.sqlite")))
    runtime.learning_stage.end(State.OFF, "Routing is off, so nothing can be learned.")
    api = LearningApi(runtime)
    assert (await api.overview())["problem"] == "Routing is off, so nothing can be learned."
    with pytest.raises(EmbedderError, match="Routing is off"):
        await api.teach(FERRY, HERON)
    assert await api.lessons() == {"total": 0, "items": []}
    await api.forget(["nobody"])
    await runtime.close()


async def test_the_story_of_a_correction_has_the_answer_before_also_of_a_version_that_did_not_keep_it(
    api: LearningApi, runtime: Runtime
) -> None:
    runtime.memory.trajectories.record(Trajectory("t", FERRY, "The ferry is called Sandholm."))
    lesson = (await api.should_have_said("t", FERRY, HERON))["lesson"]
    story = await api.lesson_story(lesson["id"])
    assert story is not None
    assert story["before"] == {"text": "The ferry is called Sandholm.", "cut": False}
    assert (story["answer"], story["last"], story["earlier"]) == (HERON, None, [])
    assert story["nllBefore"] > story["nllAfter"] > 0
    edited = (await api.edit_lesson(lesson["id"], FERRY, FIVE))["lesson"]["id"]
    story = await api.lesson_story(edited)
    assert story is not None
    assert story["before"]["text"] == "The ferry is called Sandholm."
    assert [one["text"] for one in story["earlier"]] == [HERON]
    await runtime.memory.trajectories.delete("t")
    assert (await api.lesson_story(lesson["id"]) or {})["before"]["text"] == "The ferry is called Sandholm."
    # A lesson of an older version: only the answer's trajectory knows, as long as it is there.
    runtime.memory.trajectories.record(Trajectory("u", BAKERY, "At noon.", created=1e9))
    older = (await api.should_have_said("u", BAKERY, FIVE))["lesson"]["id"]
    await runtime.memory.lessons.edit(older, before="")
    assert (await api.lesson_story(older) or {})["before"] == {"text": "At noon.", "cut": False}
    await runtime.memory.trajectories.delete("u")
    assert (await api.lesson_story(older) or {})["before"] is None
    assert await api.lesson_story("forgotten") is None


async def test_adapters_are_told_with_their_strength_by_layer(runtime: Runtime) -> None:
    assert runtime.learning is not None
    chosen = drawn(runtime.learning.model.graph, 3)
    (told,) = await LearningApi(runtime, chosen=lambda: chosen).adapters()
    assert (told["kind"], told["id"], told["on"], told["rank"]) == ("chosen", "drawn 3", True, 8)
    layers: dict[int, float] = {}
    for name, pair in chosen.pairs.items():
        layer = int(name.split(".")[1])
        layers[layer] = layers.get(layer, 0.0) + float((pair.delta.astype(float) ** 2).sum())
    assert [layer for layer, _ in told["norms"]] == sorted(layers)
    assert [norm**2 for _, norm in told["norms"]] == pytest.approx([layers[one] for one in sorted(layers)], rel=1e-4)
    assert told["norm"] ** 2 == pytest.approx(sum(layers.values()), rel=1e-4)
