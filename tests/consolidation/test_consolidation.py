"""The background loop: what it trains, keeps, refuses and forgets, with a tiny model, the real embedder and SQLite."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.consolidation.desk import BRINGING, KNOWING
from app.consolidation.service import ConsolidationService, RefusedBeforeError
from app.native_runtime import open_embedder
from app.records.lessons import Lesson
from app.records.revisions import WEIGHTS, WORK, Run
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.norms import layer_norms
from py_core.backends.numpy.training import NumpyTraining
from py_core.learning.consolidation_job import Recipe, TrainingStage
from py_core.loading import Model
from py_core.messages import Words
from py_core.routing.embedder import SentenceEmbedder
from py_core.store.rows import BLOB
from py_core.store.transfer import export, import_file
from py_core.training.session import Loss, Pack
from tests.consolidation.small_consolidation import (
    FACTS,
    FEW_STEPS,
    RECIPE,
    Opened,
    after_steps,
    memories,
    memory_of,
    numbers,
    taught,
)


@pytest.fixture(scope="module")
def embedder(made_files: dict[str, Path]) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture(scope="module")
def model(tiny_path: Path, open_model) -> Model:
    return asyncio.run(open_model(tiny_path))


@pytest.fixture
async def opened(
    embedder: SentenceEmbedder, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Opened]:
    async with memories(model, embedder, tmp_path, monkeypatch) as open_one:
        yield open_one


@pytest.fixture(scope="module")
def consolidated(embedder: SentenceEmbedder, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a memory whose two lessons a revision knows: trained once for all tests that continue from
    there."""
    folder = tmp_path_factory.mktemp("consolidated")

    async def train() -> None:
        with pytest.MonkeyPatch.context() as patch:
            async with memories(model, embedder, folder, patch) as open_one:
                service = await open_one()
                await taught(service)
                await service.consolidate()

    asyncio.run(train())
    return folder


@pytest.fixture
def copied(opened: Opened, consolidated: Path, tmp_path: Path) -> Opened:
    """`opened`, with the earlier consolidation."""
    shutil.copytree(consolidated, tmp_path, dirs_exist_ok=True)
    return opened


async def ids(service: ConsolidationService) -> list[str]:
    """The ids of the lessons of FACTS, in its order."""
    known = {lesson.question: lesson.id for lesson in await memory_of(service).lessons.all()}
    return [known[question] for question in FACTS]


async def test_what_was_taught_moves_into_a_revision_that_answers_also_after_a_restart(opened: Opened) -> None:
    service = await opened()
    ids = await taught(service)
    assert await service.waiting() == 2
    told, doing = list[tuple[int, int]](), dict[Words, int]()

    def report(done: int, total: int, what: Words = "") -> None:
        told.append((done, total))
        doing[what] = doing.get(what, 0) + 1

    run = await service.consolidate(report=report)
    assert run is not None
    assert (run.verdict, run.revision, set(run.lessons)) == ("accepted", 1, set(ids))
    assert run.recall["before"] == 0
    assert run.recall["after"] == 1
    assert run.steps["cross_entropy"][-1] < 1 < run.steps["cross_entropy"][0]
    assert len(run.steps["tokens"]) == 20
    assert run.tokens == sum(run.steps["tokens"])
    assert run.probe["after"] <= run.probe["base"] * (1 + RECIPE.harm)
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert list(doing) == [*(stage.value for stage in TrainingStage), BRINGING]  # one after the other
    assert doing[TrainingStage.TRAINING.value] >= 20
    assert await service.waiting() == 0
    assert service.current is not None
    assert service.adapter is not None
    assert service.learning.imprints.revision == 1
    again = await opened()
    assert again.current is not None
    assert again.current.id == run.id
    assert again.adapter is not None
    for name, pair in service.adapter.pairs.items():
        np.testing.assert_array_equal(again.adapter.pairs[name].b, pair.b)
    assert await again.consolidate() is None


@pytest.mark.no_cover
async def test_a_run_that_was_cut_short_anywhere_ends_as_one_that_was_not(opened: Opened) -> None:
    whole = await opened(name="whole")
    pieces = await opened(name="pieces")
    for service in (whole, pieces):
        await taught(service)
        for number, lesson in enumerate(await memory_of(service).lessons.all()):
            # The same ids, as in one memory: examples are weighted, not drawn, by them.
            assert lesson.question == list(FACTS)[number]
    expected = await whole.consolidate()
    for number in range(20):
        task = await after_steps(pieces, 4)
        if task.done():
            assert number >= 2
            break
        task.cancel()
        await asyncio.wait([task])
        assert await pieces.is_begun()
        pieces = await opened(name="pieces")
        assert pieces.current is None  # the old adapter answers until everything is done
    run = await asyncio.wait_for(task, 0)
    assert expected is not None
    assert run is not None
    assert await numbers(pieces, run) == await numbers(whole, expected)
    assert (run.steps, run.probe, run.recall) == (expected.steps, expected.probe, expected.recall)
    assert not await pieces.is_begun()


@pytest.mark.no_cover
async def test_an_adapter_that_harms_other_texts_at_any_size_is_refused_and_the_old_one_stays(copied: Opened) -> None:
    refusing = await copied(replace(RECIPE, harm=-0.9, portions=FEW_STEPS))
    first = refusing.current
    assert first is not None
    await taught(refusing, {"Dog?": "Rex."})
    refused = await refusing.consolidate()
    assert refused is not None
    assert (refused.verdict, refused.revision, refused.has_weights) == ("refused", 0, False)
    assert "stays" in str(refused.why)
    assert refusing.current is not None
    assert refusing.current.id == first.id
    assert refused.scale == RECIPE.scales[-1]


@pytest.mark.no_cover
async def test_a_refused_training_is_not_repeated_until_a_lesson_changes(opened: Opened) -> None:
    service = await opened(replace(RECIPE, harm=-0.9, portions=FEW_STEPS))
    cat, _ = await taught(service)

    async def is_refused(seed: int = 0) -> bool:
        run = await service.consolidate(seed=seed)
        return run is not None and run.verdict == "refused" and await service.waiting() == 0

    assert await is_refused()
    with pytest.raises(RefusedBeforeError, match="Teach something new"):
        await service.consolidate()
    assert await is_refused(seed=1)  # a user may ask for other random numbers; pauses keep to theirs
    await memory_of(service).lessons.edit(cat, quality=0.5)  # feedback on its answers counts in the training
    assert await service.waiting() == 2
    assert await is_refused()
    await taught(service, {"Dog?": "Rex."})
    assert await service.waiting() == 3
    assert await is_refused()
    await service.learning.forget(cat)
    assert await service.waiting() == 2
    assert await is_refused()


async def test_a_training_that_gives_no_more_answers_is_refused(opened: Opened) -> None:
    service = await opened(replace(RECIPE, rate=1e-6, portions=FEW_STEPS))
    await taught(service)
    run = await service.consolidate()
    assert run is not None
    assert (run.verdict, run.recall["after"]) == ("refused", 0)
    assert await service.waiting() == 0


async def test_a_training_during_which_a_lesson_was_taken_away_is_done_again_if_the_lesson_returns(
    opened: Opened,
) -> None:
    service = await opened(replace(RECIPE, portions=FEW_STEPS))
    cat, _ = await taught(service)
    task = await after_steps(service, 4)
    await service.learning.switch(cat, False)
    run = await task
    assert run is not None
    assert (run.verdict, run.revision) == ("refused", 0)
    assert "forgotten in the meantime" in str(run.why)
    assert await service.waiting() == 1
    await service.learning.switch(cat, True)
    assert await service.waiting() == 2


async def test_a_training_whose_numbers_are_not_finite_leaves_the_old_revision(
    copied: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await copied()
    first = service.current

    async def lost(self: NumpyTraining, pack: Pack, after_piece: object = None) -> Loss:
        return Loss(float("nan"), 0.0)

    monkeypatch.setattr(NumpyTraining, "accumulate", lost)
    await taught(service, {"Dog?": "Rex."})
    told = list[str]()
    run = await service.consolidate(trouble=told.append)
    assert run is not None
    assert first is not None
    assert run.verdict == "refused"
    assert "were not finite" in str(run.why)
    assert len(told) == 3
    assert service.current is not None
    assert service.current.id == first.id


async def test_a_model_that_is_not_known_yet_tells_how_far_it_is_before_its_first_imprint_and_never_again(
    opened: Opened,
) -> None:
    service = await opened()
    for question, answer in FACTS.items():  # as after an import
        await memory_of(service).lessons.keep(Lesson(question, answer))
    doing = list[str]()
    run = await service.consolidate(report=lambda done, total, what="": doing.append(what))
    assert run is not None
    assert list(dict.fromkeys(doing))[-2:] == [BRINGING, KNOWING]
    told = list[tuple[int, int]]()
    with service.learning.imprints.telling(lambda read, texts: told.append((read, texts))):
        await service.learning.teach("Dog?", "Rex.")
        assert told == []
        other = await opened(name="other")
    with other.learning.imprints.telling(lambda read, texts: told.append((read, texts))):
        await other.learning.teach("Dog?", "Rex.")
    assert told == [(0, 1), (1, 1)]


@pytest.mark.no_cover
async def test_what_the_plain_model_says_is_found_out_once(opened: Opened) -> None:
    service = await opened()
    runs, doing = list[Run | None](), list[set[Words]]()
    for _ in range(2):
        ids, said = await taught(service), set[Words]()
        runs.append(await service.consolidate(report=lambda done, total, what="", said=said: said.add(what)))
        doing.append(said)
        await service.learning.forget(*ids)  # the revision is moved along
    assert [TrainingStage.ANSWERING.value in said for said in doing] == [True, False]
    first, second = runs
    assert first is not None
    assert second is not None
    assert second.parent == 0
    assert (second.steps, second.probe, second.recall) == (first.steps, first.probe, first.recall)


@pytest.mark.no_cover
async def test_a_second_run_goes_on_and_rehearses_what_the_first_one_taught(opened: Opened) -> None:
    service = await opened()
    old = await taught(service, {"Cat?": "Tom."})
    first = await service.consolidate()
    new = await taught(service, {"Boat?": "Ida."})
    second = await service.consolidate()
    assert first is not None
    assert second is not None
    assert (second.parent, second.revision, second.new) == (1, 2, tuple(new))
    assert set(second.lessons) == {*old, *new}
    assert second.recall["before"] == 0.5
    assert second.probe["before"] == first.probe["after"]
    assert max(second.steps["penalty"]) > 0  # it is anchored to the first one's weights, too
    assert max(first.steps["penalty"]) == 0
    assert second.recall["after"] == second.recall["old"] == 1


async def test_a_lesson_that_is_forgotten_takes_what_knows_it_along_at_once(copied: Opened) -> None:
    service = await copied()
    cat, boat = await ids(service)
    memory = memory_of(service)
    told = list[LoraAdapter | None]()

    async def answer_with(adapter: LoraAdapter | None) -> None:
        told.append(adapter)

    service._answer_with = answer_with
    await service.learning.forget(cat)
    assert not await memory.store.query(WEIGHTS)  # in the same transaction
    await service.refresh()
    assert told == [None]
    assert service.current is None
    assert service.learning.imprints.revision == 0
    (run,) = await memory.revisions.runs()
    assert run.revision == 1
    assert not run.has_weights
    second = await service.consolidate()
    assert second is not None
    assert (second.parent, second.revision, second.lessons) == (0, 2, (boat,))


async def test_a_lesson_that_is_switched_off_silences_the_revision_and_the_background_switch_does_too(
    copied: Opened,
) -> None:
    service = await copied()
    cat, _ = await ids(service)
    run = service.current
    memory = memory_of(service)
    assert run is not None
    answers = service.adapter
    assert answers is not None
    assert await service.adapter_of(run) is answers
    for off, on in (
        (lambda: service.learning.switch(cat, False), lambda: service.learning.switch(cat, True)),
        (
            lambda: memory.policies.edit("learning.background", False),
            lambda: memory.policies.edit("learning.background", True),
        ),
        (lambda: memory.revisions.switch(run.id, False), lambda: memory.revisions.switch(run.id, True)),
    ):
        await off()
        await service.refresh()
        assert service.current is None
        assert service.learning.imprints.revision == 0
        shown = await service.adapter_of(run)  # the user can still look at it
        assert shown is not None
        np.testing.assert_allclose(layer_norms(shown), layer_norms(answers), rtol=1e-5)
        await on()
        await service.refresh()
        assert service.current is not None


@pytest.mark.no_cover
async def test_a_corrected_lesson_is_trained_beside_the_others_and_its_old_answer_stays_known_to_be_in_there(
    copied: Opened,
) -> None:
    service = await copied()
    cat, boat = await ids(service)
    (corrected,) = await taught(service, {"Cat?": "Mia."})
    assert service.current is not None  # the new answer comes from its imprint
    start, new, old = await service._to_learn()
    assert start is not None
    assert ([one.id for one in new], [one.id for one in old]) == ([corrected], [boat])
    run = await service.consolidate()
    assert run is not None
    assert set(run.lessons) == {cat, boat, corrected}  # forgetting the first answer forgets this, too


async def test_an_unfinished_run_keeps_nothing_of_a_lesson_that_is_forgotten(opened: Opened) -> None:
    service = await opened()
    cat, _ = await taught(service)
    task = await after_steps(service, 4)
    task.cancel()
    await asyncio.wait([task])
    store = memory_of(service).store
    assert await store.keys_starting_with(BLOB, WORK)
    await service.learning.forget(cat)
    assert not await store.keys_starting_with(BLOB, WORK)


async def test_an_export_carries_the_revision_to_another_memory(copied: Opened) -> None:
    service = await copied()
    run = service.current
    assert run is not None
    other = await copied(name="other")
    await import_file(memory_of(other).store, await export(memory_of(service).store), "merge")
    await other.refresh()
    assert other.current is not None
    assert other.current.id == run.id
    assert await numbers(other, run) == await numbers(service, run)


async def test_after_its_minutes_a_run_ends_and_the_next_one_goes_on(opened: Opened) -> None:
    service = await opened()
    await taught(service)
    with pytest.raises(TimeoutError):
        await service.consolidate(minutes=0.0001)
    run = await service.consolidate()
    assert run is not None
    assert run.verdict == "accepted"


def test_a_wider_model_takes_smaller_steps() -> None:
    recipe = Recipe()
    assert recipe.rate_of(64, again=False) == recipe.rate_of(576, again=False) == 4e-3
    assert recipe.rate_of(1152, again=False) == 1e-3
    assert recipe.rate_of(1152, again=True) == pytest.approx(6e-4)
