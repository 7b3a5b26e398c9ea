"""The router's head learns from corrections, with the real embedder: what is kept of it, refused, forgotten, undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from app import router_training
from app.bench_routing_habits import read_habits
from app.idle_loops import idle_loops
from app.learning_api import LearningApi
from app.native_services import native_router_parts
from app.one_learner import FileLock
from app.router_factory import RouterParts
from app.router_training import WEIGHT_POLICY, RouterTraining
from app.routing_service import RoutingService
from app.services import Services
from py_core.memory.encryption import NativeCrypto
from py_core.memory.heads import KIND, TrainedHead
from py_core.memory.sqlite import SQLiteRows
from py_core.memory.transfer import export, import_file
from py_core.routing.agents import FALLBACK_ID
from py_core.routing.head import Head
from tests.few_examples import few_parts, use_few_examples

Opened = Callable[..., Awaitable[Services]]
HABITS = {habit["name"]: habit for habit in read_habits()}
PRIVACY = HABITS["privacy texts are security"]


@pytest.fixture(scope="module")
def parts(made_files: dict[str, Path]) -> RouterParts:
    return native_router_parts()


@pytest.fixture
async def opened(request: pytest.FixtureRequest, parts: RouterParts, tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens the same memory each time, or another one by its name, as another start of the program does."""
    closing = list[Services]()
    if "quick" in request.fixturenames:
        parts = request.getfixturevalue("quick")

    async def open_one(name: str = "memory") -> Services:
        services = Services(NativeCrypto())
        await services.open(lambda: SQLiteRows.open(tmp_path / f"{name}.sqlite"))
        await services.route_with(lambda memory: RoutingService.open(parts.embedder, parts.data, memory, parts.kernel))
        closing.append(services)
        return services

    yield open_one
    for services in closing:
        await services.close()


@pytest.fixture(scope="module")
def parts_of_few(parts: RouterParts) -> RouterParts:
    return few_parts(parts)


@pytest.fixture
def quick(parts_of_few: RouterParts, monkeypatch: pytest.MonkeyPatch) -> RouterParts:
    """An eighth of the time, for what does not depend on how sure the decision is."""
    use_few_examples(monkeypatch, parts_of_few)
    monkeypatch.setattr(router_training, "PARTS", 2)
    return parts_of_few


def routing_of(services: Services) -> RoutingService:
    assert services.routing is not None
    return services.routing


def head_of(services: Services) -> Head:
    head = routing_of(services).router.head
    assert head is not None
    return head


async def corrected(services: Services, texts: list[str], agent: str) -> list[str]:
    """The ids of the corrections."""
    routing = routing_of(services)
    return [await routing.correct((await routing.route(text)).id, text, agent) for text in texts]


async def train(services: Services, seed: int = 0) -> TrainedHead | None:
    return await RouterTraining(services).train(seed=seed, step=nullcontext)


async def right(services: Services, texts: list[str], agent: str) -> int:
    routing = routing_of(services)
    return sum([(await routing.route(text)).agent.id == agent for text in texts])


async def test_corrections_teach_the_head_what_is_asked_in_other_words_and_it_stays_learned(
    opened: Opened, tmp_path: Path
) -> None:
    services = await opened()
    shipped = head_of(services)
    ids = await corrected(services, PRIVACY["told"], "security-architect")
    assert await RouterTraining(services).waiting() == 5
    before = await right(services, PRIVACY["other"], "security-architect")
    made = await train(services)
    assert made is not None
    assert made.verdict == "accepted"
    assert made.learned == dict.fromkeys(ids, "security-architect")
    assert made.figures["held_after"] >= made.figures["held_before"]
    assert made.figures["held_place_after"] > made.figures["held_place_before"]
    assert made.figures["probe"] > 400
    after = await right(services, PRIVACY["other"], "security-architect")
    assert after >= before
    assert await RouterTraining(services).waiting() < 4
    assert await train(services) is None  # nothing is new

    again = await opened()
    np.testing.assert_array_equal(head_of(again).words, head_of(services).words)
    assert await right(again, PRIVACY["other"], "security-architect") == after
    other = await opened("other")
    await import_file(other.memory_now().store, await export(services.memory_now().store), "merge")
    await routing_of(other).refresh(everything=True)
    assert await right(other, PRIVACY["other"], "security-architect") == after

    temporary = await opened("temporary")
    await routing_of(temporary).move(again.memory_now())  # as when a memory is unlocked
    assert await right(temporary, PRIVACY["other"], "security-architect") == after

    policies = services.memory_now().policies
    await policies.edit("learning.background", False)
    await routing_of(services).refresh()
    assert head_of(services) is routing_of(services).shipped_head
    await policies.edit("learning.background", True)
    await routing_of(services).refresh()
    assert await right(services, PRIVACY["other"], "security-architect") == after

    api = LearningApi(services)
    await services.learn_idly(idle_loops(services), nullcontext, FileLock(tmp_path / "lock"), idle_seconds=3600)
    loop = (await api.overview())["loops"][2]
    assert (loop["name"], loop["undo"]) == ("background", "Undo the router's training")
    assert loop["words"].startswith("The router was trained with 5 corrected routes. ")
    await api.undo_router()
    loop = (await api.overview())["loops"][2]
    assert (loop["undo"], loop["words"].endswith("It was taken back.")) == ("", True)
    np.testing.assert_array_equal(head_of(services).words, shipped.words)
    assert not await RouterTraining(services).undo()
    assert await RouterTraining(services).waiting() == 0  # what was taken back is not learned again
    assert await train(services) is None


@pytest.mark.no_cover
@pytest.mark.usefixtures("quick")
async def test_a_correction_that_is_taken_back_is_in_no_numbers_any_more(opened: Opened) -> None:
    services = await opened()
    ids = await corrected(services, PRIVACY["told"], "security-architect")
    await train(services)
    memory, routing = services.memory_now(), routing_of(services)
    # Said otherwise: the head that learned it as it was is not used, before anything is trained.
    await routing.correct("", PRIVACY["told"][0], "tester")
    await routing.refresh()
    assert head_of(services) is routing.shipped_head
    await routing.correct("", PRIVACY["told"][0], "security-architect")
    await routing.refresh()
    assert head_of(services) is not routing.shipped_head
    await routing.forget(ids[:1])
    (kept,) = await memory.store.query(KIND)
    assert kept.body["data"] == ""  # in the same transaction
    await routing.refresh()
    assert head_of(services) is routing.shipped_head
    anew = await train(services)
    assert anew is not None
    assert list(anew.learned) == sorted(ids[1:])


@pytest.mark.usefixtures("quick")
async def test_corrections_without_a_pattern_are_refused_and_not_tried_again(opened: Opened) -> None:
    services = await opened()
    agents = routing_of(services).router.agents
    for number, habit in enumerate(list(HABITS.values())[:5]):
        await corrected(services, habit["told"][:1], agents[2 * number])
    made = await train(services)
    assert made is not None
    assert (made.verdict, made.data) == ("refused", b"")
    assert head_of(services) is routing_of(services).shipped_head
    assert await train(services) is None
    assert await RouterTraining(services).waiting() == 0
    assert [one.why for one in await services.memory_now().heads.all()] == [made.why]


@pytest.mark.no_cover
@pytest.mark.usefixtures("quick")
async def test_where_examples_go_wrong_it_is_refused_and_corrections_count_half_the_next_time(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await opened()
    await corrected(services, PRIVACY["told"], "security-architect")
    monkeypatch.setattr(router_training, "HARM", -1.0)  # as if any training went too far
    first = await train(services)
    policy = services.memory_now().policies.look(WEIGHT_POLICY)
    assert first is not None
    assert policy is not None
    assert (first.verdict, "too few" in first.why) == ("refused", True)
    assert (policy.value, policy.source, policy.observations, policy.confidence) == (0.5, "background", 1, 0.5)
    monkeypatch.setattr(router_training, "HARM", 0.01)
    second = await train(services)
    assert second is not None
    assert (first.weight, second.weight) == (1.0, 0.5)
    shipped = routing_of(services).shipped_head
    changes = [np.abs(head_of(services).words - shipped.words).max()]
    await services.memory_now().policies.edit(WEIGHT_POLICY, 1.0)
    assert await train(services) is not None
    changes.append(np.abs(head_of(services).words - shipped.words).max())
    assert 0 < 1.2 * changes[0] < changes[1]


@pytest.mark.no_cover
@pytest.mark.usefixtures("quick")
async def test_the_same_corrections_and_seed_give_the_same_head_and_few_give_none(opened: Opened) -> None:
    heads = []
    for name in ("one", "two"):
        services = await opened(name)
        await corrected(services, PRIVACY["told"][:3], "security-architect")
        assert await train(services) is None
        assert await RouterTraining(services).waiting() == 0
        await corrected(services, PRIVACY["told"][3:], "security-architect")
        heads.append(await train(services, seed=3))
    one, two = heads
    assert one is not None
    assert two is not None
    assert (one.data, one.figures) == (two.data, two.figures)


@pytest.mark.usefixtures("quick")
async def test_what_a_person_does_meanwhile_is_not_lost(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    services = await opened()
    ids = await corrected(services, PRIVACY["told"], "security-architect")
    found = RouterTraining._held_out

    async def forgetting(*arguments):
        await routing_of(services).forget(ids[:1])
        return await found(*arguments)

    monkeypatch.setattr(RouterTraining, "_held_out", forgetting)
    assert await train(services) is None
    assert not await services.memory_now().heads.all()


@pytest.mark.no_cover
@pytest.mark.usefixtures("quick")
async def test_it_learns_in_idle_times_with_the_switch_of_the_background_loop(opened: Opened) -> None:
    services = await opened()
    services.memory_now().background.share = 1.0  # nothing else wants its turn here
    (router,) = (loop for loop in idle_loops(services) if loop.name == "router")
    assert router.switch == "background"
    await corrected(services, PRIVACY["told"], "security-architect")
    assert await router.work.waiting() >= router.enough
    told = list[tuple[int, int]]()
    await router.work.run(lambda done, total, what: told.append((done, total)))
    assert routing_of(services).trained is not None
    assert told[-1] == (told[0][1], told[0][1])
    assert await router.work.waiting() < router.enough


@pytest.mark.no_cover
@pytest.mark.usefixtures("quick")
async def test_corrections_to_the_plain_assistant_are_learned_too(opened: Opened) -> None:
    services = await opened()
    texts = ["when is the best time to plant tomatoes", "how often do I water a cactus", "what eats my roses",
             "how deep do I sow carrots", "which flowers like shade"]  # fmt: skip
    shares = []
    await corrected(services, texts, FALLBACK_ID)
    vector = (await routing_of(services).embedder.embed(["when do I sow peas"]))[0]
    column = head_of(services).agents.index(FALLBACK_ID)
    shares.append(head_of(services).scores("when do I sow peas", vector)[column])
    await train(services)
    shares.append(head_of(services).scores("when do I sow peas", vector)[column])
    assert shares[1] >= shares[0]
