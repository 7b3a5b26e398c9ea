"""The router: its decisions, the effect of corrections, and what is stored."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bench.routing import measure_follow_ups, read_follow_ups
from app.models.build_outputs import hnsw_kernel_path
from app.native_runtime import open_router
from app.records.kinds import KINDS
from app.records.memory import Memory
from app.routing.agent_catalog import add_agent, no_changes, remove_agent, shipped_agents
from app.routing.factory import router_parameters
from app.routing.pattern_store import load_patterns
from py_core.hnsw.wasmtime_kernel import WasmtimeHnswKernel
from py_core.routing.agents import FALLBACK_ID, AgentError, Example
from py_core.routing.head import buckets, fit_head
from py_core.routing.parameters import ParametersError, RouterParameters, parameters_from_dict
from py_core.routing.patterns import LEAST_WEIGHT, MOST_WEIGHT, Pattern
from py_core.routing.router import Decision, Router
from py_core.routing.routing_data import RoutingData, RoutingDataError, read_routing_data, write_routing_data
from py_core.store.kinds import Kinds
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows

DIMENSIONS = 64
PARAMETERS = RouterParameters(
    neighbours=5, temperature=0.1, head_words=0.5, head_ridge=1.0, head_scale=8.0, votes=0.5, learned_similarity=0.75,
    learned_width=0.03, learned_lead=0.1, threshold=0.5, calibration=(-6.0, 0.0, 0.0, 10.0, 0.0, 0.0),
)  # fmt: skip
EXAMPLES = [
    Example(text, agent, number)
    for number, (agent, text) in enumerate(
        [
            ("cook", "how do i bake bread"),
            ("cook", "a soup with carrots for six"),
            ("cook", "my dough does not rise"),
            ("gardener", "when do i plant tomatoes"),
            ("gardener", "slugs eat my salad in the garden"),
            ("gardener", "the roses have black spots"),
            ("driver", "the car makes a strange noise"),
            ("driver", "which tyres for the winter"),
        ],
        1,
    )
]
AGENTS = ["cook", "driver", "gardener", FALLBACK_ID]


class LetterEmbedder:
    """Vectors of hashed pieces of three letters: similar texts are near. `turn` makes it another embedder."""

    dimensions = DIMENSIONS

    def __init__(self, turn: int = 0) -> None:
        self.fingerprint = f"letters {turn}"
        self._turn = turn

    async def embed(self, texts):
        out = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            for at in range(len(text) + 1):
                out[row, sum(map(ord, f" {text.lower()} "[at : at + 3])) * 31 % DIMENSIONS] += 1
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return np.roll(out, self._turn, axis=1)

    def forget(self) -> None:
        pass


async def made(kernel=None, parameters=PARAMETERS, agents=AGENTS, head=None, turn=0) -> Router:
    embedder = LetterEmbedder(turn)
    router = Router(embedder, parameters, agents=agents, head=head, kernel=kernel)
    router.add_examples(EXAMPLES, await embedder.embed([example.text for example in EXAMPLES]))
    return router


def patterns_of(router: Router) -> dict[str, Pattern]:
    return {p.id: p for patterns in (router.examples, router.learned) for p in patterns.of.values()}


@pytest.fixture
async def router() -> Router:
    return await made()


def what(decision: Decision) -> Decision:
    """The decision without its times."""
    return replace(decision, milliseconds={})


async def test_an_example_goes_to_its_agent_and_says_why(router) -> None:
    for example in EXAMPLES:
        decision = await router.route(example.text)
        assert (decision.agent, decision.ranked[0][0]) == (example.agent, example.agent)
        assert decision.neighbours[0].text == example.text
        assert decision.neighbours[0].similarity == pytest.approx(1, abs=1e-5)
        assert decision.reason == "examples"
        assert set(decision.milliseconds) == {"embed", "search", "decide"}


@pytest.mark.parametrize("text", [example.text for example in EXAMPLES] + ["zzz qqq xxx", "rain on the roses", "car"])
async def test_words_and_numbers_of_a_decision_agree(router, text) -> None:
    decision = await router.route(text)
    likelihoods = [likelihood for _, likelihood in decision.ranked]
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert likelihoods[0] == decision.confidence
    assert sum(likelihoods) <= 1 + 1e-9
    assert decision.threshold == PARAMETERS.threshold
    if decision.reason == "unsure":
        assert decision.agent == FALLBACK_ID
        assert max(likelihoods) < decision.threshold
    else:
        assert decision.agent == decision.ranked[0][0]
        assert likelihoods[0] >= decision.threshold


async def test_the_reason_is_the_correction_or_the_head_or_the_examples() -> None:
    vectors = await LetterEmbedder().embed([example.text for example in EXAMPLES])
    names = ["driver" if example.text == "how do i bake bread" else example.agent for example in EXAMPLES]
    head = fit_head([example.text for example in EXAMPLES], vectors, names, words=0.5, ridge=0.1)
    router = await made(head=head, parameters=replace(PARAMETERS, votes=0.1))
    assert (await router.route("when do i plant tomatoes")).reason == "examples"
    against = await router.route("how do i bake bread")
    assert (against.agent, against.reason, against.neighbours[0].agent) == ("driver", "wording", "cook")
    await router.correct("how do i bake bread", "gardener")
    said = await router.route("how do i bake bread")
    assert (said.agent, said.reason) == ("gardener", "correction")
    own = [Example("open the window", "driver", 1)]
    router.add_examples(own, await router.embedder.embed(["open the window"]), "agent")
    assert (await router.route("open the window")).reason == "examples"


async def test_an_everyday_example_that_is_near_keeps_a_request_with_the_plain_assistant() -> None:
    router = await made(parameters=replace(PARAMETERS, calibration=(-3.0, 0.0, 0.0, 10.0, 0.0, -5.0)))
    text = "how do i bake bread for six"
    assert (await router.route(text)).agent == "cook"
    everyday = [Example("how do i bake for six", FALLBACK_ID, 1)]
    router.add_examples(everyday, await router.embedder.embed([everyday[0].text]))
    decision = await router.route(text)
    assert (decision.agent, decision.reason) == (FALLBACK_ID, "unsure")
    assert (decision.neighbours[0].text, decision.ranked[0][0]) == (everyday[0].text, "cook")


async def test_with_a_multilingual_embedder_the_examples_count_in_every_language() -> None:
    text = "wie backe ich mein brot"
    for is_multilingual, agent in ((False, FALLBACK_ID), (True, "cook")):
        router = Router(LetterEmbedder(), PARAMETERS, agents=AGENTS, is_multilingual=is_multilingual)
        router.add_examples([Example(text, "cook", 1)], await router.embedder.embed([text]))
        assert (await router.route(text)).agent == agent


async def test_outside_english_only_what_the_user_said_counts_unless_there_is_code(router) -> None:
    text = "wie backe ich mein brot"
    router.add_examples([Example(text, "cook", 1)], await router.embedder.embed([text]))
    decision = await router.route(text)
    assert (decision.agent, decision.reason, decision.ranked, decision.neighbours) == (FALLBACK_ID, "language", (), ())
    with_code = f"{text}: bread.bake()"
    router.add_examples([Example(with_code, "driver", 1)], await router.embedder.embed([with_code]))
    assert (await router.route(with_code)).agent == "driver"
    await router.correct(text, "gardener")
    decision = await router.route("wie backe ich mein brot?")
    assert (decision.agent, decision.reason) == ("gardener", "correction")


async def test_a_short_message_stays_with_the_conversations_agent_unless_another_is_clearly_meant(router) -> None:
    alone = await router.route("and that one")
    assert (alone.agent, alone.reason) == (FALLBACK_ID, "unsure")
    stays = await router.route("and that one", "gardener")
    assert (stays.agent, stays.reason) == ("gardener", "follow-up")
    assert (stays.ranked, stays.confidence) == (alone.ranked, alone.confidence)
    long = await router.route("and that one " * 6, "gardener")
    assert long.reason != "follow-up"
    clear = await router.route("how do i bake bread", "gardener")
    assert (clear.agent, clear.reason) == ("cook", "examples")
    for other in (FALLBACK_ID, "astronaut", None):  # the plain assistant and a removed agent get nothing
        assert (await router.route("and that one", other)).agent == FALLBACK_ID


async def test_a_correction_counts_in_a_conversation_with_another_agent(router) -> None:
    await router.correct("and that one", "driver")
    decision = await router.route("and that one", "gardener")
    assert (decision.agent, decision.reason) == ("driver", "correction")


async def test_a_correction_wins_at_once_and_for_near_texts(router) -> None:
    assert (await router.route("how do i bake bread")).agent == "cook"
    await router.correct("how do i bake bread", "driver")
    for text in ("how do i bake bread", "How do I bake bread?", "how do i bake  breads", "so how do i bake bread"):
        decision = await router.route(text)
        assert decision.agent == "driver", text
    assert (await router.route("when do i plant tomatoes")).agent == "gardener"
    assert (await router.route("a soup with carrots for six")).agent == "cook"


async def test_a_later_correction_replaces_the_one_before(router) -> None:
    first = await router.correct("how do i bake bread", "driver")
    second = await router.correct("How do i bake  bread", "gardener")
    assert first.id == second.id
    assert len(router.learned) == 1
    assert (await router.route("how do i bake bread")).agent == "gardener"


async def test_a_request_can_be_corrected_to_the_fallback(router) -> None:
    await router.correct("how do i bake bread", FALLBACK_ID)
    decision = await router.route("how do i bake bread")
    assert (decision.agent, decision.ranked[0][0]) == (FALLBACK_ID, FALLBACK_ID)
    assert decision.confidence > 0.9


async def test_forgetting_takes_a_correction_back(router) -> None:
    before = await router.route("how do i bake bread")
    pattern = await router.correct("how do i bake bread", "driver")
    assert router.forget(pattern.id)
    assert not router.forget(pattern.id)
    assert what(await router.route("how do i bake bread")) == what(before)


async def test_outcomes_move_a_weight_by_5_percent_within_bounds(router) -> None:
    id = (await router.route("how do i bake bread")).neighbours[0].pattern_id
    assert router.learn(id, True).weight == pytest.approx(1.05)
    assert router.learn(id, False).weight == pytest.approx(1.05 * 0.95)
    for _ in range(100):
        router.learn(id, True)
    assert router.learn(id, True).weight == MOST_WEIGHT
    for _ in range(100):
        router.learn(id, False)
    assert router.learn(id, False).weight == LEAST_WEIGHT
    with pytest.raises(KeyError, match="no pattern 'nobody'"):
        router.learn("nobody", True)


async def test_a_pattern_that_was_good_has_more_of_the_votes(router) -> None:
    text = "how do i plant bread"
    before = await router.route(text)
    other = next(one for one in before.neighbours if one.agent != before.ranked[0][0])
    for _ in range(20):
        router.learn(other.pattern_id, True)
    after = dict((await router.route(text)).ranked)
    assert after[other.agent] > dict(before.ranked)[other.agent] + 0.01


async def test_bad_outcomes_weaken_a_correction(router) -> None:
    near = "so tell me please how do i bake bread"
    pattern = await router.correct("how do i bake bread", "driver")
    before = dict((await router.route(near)).ranked)
    for _ in range(20):
        router.learn(pattern.id, False)
    assert dict((await router.route(near)).ranked)["driver"] < before["driver"]


async def test_a_low_confidence_goes_to_the_fallback(router) -> None:
    decision = await router.route("zzz qqq xxx")
    assert decision.confidence < PARAMETERS.threshold
    assert decision.agent == FALLBACK_ID
    sure = await made(parameters=replace(PARAMETERS, threshold=0.0))
    assert (await sure.route("zzz qqq xxx")).agent == decision.ranked[0][0] != FALLBACK_ID


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_an_empty_text_goes_to_the_fallback(router, text) -> None:
    decision = await router.route(text)
    assert (decision.agent, decision.confidence, decision.neighbours) == (FALLBACK_ID, 0.0, ())
    with pytest.raises(AgentError, match="empty"):
        await router.correct(text, "cook")


async def test_a_huge_text_is_routed(router) -> None:
    decision = await router.route("how do i bake bread " * 500)
    assert decision.ranked[0][0] == "cook"


async def test_more_neighbours_than_patterns_are_all_of_them() -> None:
    router = await made(parameters=replace(PARAMETERS, neighbours=100))
    assert len((await router.route("bread")).neighbours) == len(EXAMPLES)


async def test_without_anything_to_go_by_the_fallback_answers() -> None:
    router = Router(LetterEmbedder(), PARAMETERS, agents=AGENTS)
    decision = await router.route("bread")
    assert (decision.agent, decision.confidence, decision.ranked) == (FALLBACK_ID, 0.0, ())
    await router.correct("bread", "cook")
    assert (await router.route("bread")).agent == "cook"


async def test_an_unknown_agent_is_refused(router) -> None:
    with pytest.raises(AgentError, match=r"no agent 'astronaut'\. The agents are assistant, cook, driver, gardener"):
        await router.correct("to the moon", "astronaut")


async def test_removed_agents_get_no_votes_until_they_are_back() -> None:
    vectors = await LetterEmbedder().embed([example.text for example in EXAMPLES])
    names = [example.agent for example in EXAMPLES]
    head = fit_head([example.text for example in EXAMPLES], vectors, names, words=0.5, ridge=1.0)
    router = await made(head=head)
    await router.correct("what shall we eat", "cook")
    before = await router.route("how do i bake bread")
    router.set_agents(["driver", "gardener", FALLBACK_ID])
    for text in ("how do i bake bread", "what shall we eat"):
        decision = await router.route(text)
        assert "cook" not in dict(decision.ranked)
        assert all(one.agent != "cook" for one in decision.neighbours)
    router.set_agents(AGENTS)
    assert what(await router.route("how do i bake bread")) == what(before)
    assert (await router.route("what shall we eat")).agent == "cook"


async def test_decisions_are_the_same_each_time_and_with_the_kernel(made_files) -> None:
    texts = ["how do i bake bread", "the car", "xyz", "rain on the roses"]
    first = [what(await (await made()).route(text)) for text in texts]
    assert first == [what(await (await made()).route(text)) for text in texts]
    with_kernel = await made(WasmtimeHnswKernel(hnsw_kernel_path()))
    for text, wanted in zip(texts, first, strict=True):
        decision = await with_kernel.route(text)
        assert decision.agent == wanted.agent
        assert [agent for agent, _ in decision.ranked] == [agent for agent, _ in wanted.ranked]
        assert decision.confidence == pytest.approx(wanted.confidence, abs=1e-5)


TEXT = st.text("abcdefg ", min_size=1, max_size=30).filter(str.strip)


@settings(max_examples=30, deadline=None)
@given(
    corrections=st.lists(st.tuples(TEXT, st.sampled_from(AGENTS)), max_size=8),
    outcomes=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=20),
    asked=TEXT,
)
async def test_a_router_with_what_was_kept_of_another_decides_the_same(corrections, outcomes, asked) -> None:
    router = await made()
    for text, agent in corrections:
        await router.correct(text, agent)
    ids = [pattern.id for patterns in (router.examples, router.learned) for pattern in patterns.of.values()]
    for number, good in outcomes:
        router.learn(ids[number % len(ids)], good)
    store = await Store.open(VolatileRows(), kinds=Kinds(KINDS))
    memory = await Memory.open(store)
    stored = memory.patterns
    restored = await made()
    await load_patterns(restored, memory)
    for patterns in (router.examples, router.learned):
        for pattern in patterns.of.values():
            await stored.keep(pattern)
    await load_patterns(restored, memory)
    assert patterns_of(restored) == patterns_of(router)
    there, here = await restored.route(asked), await router.route(asked)
    assert (there.agent, there.neighbours) == (here.agent, here.neighbours)
    assert there.confidence == pytest.approx(here.confidence, abs=1e-6)  # stored weights have aged a moment


async def test_what_was_learned_lives_in_a_store(tmp_path) -> None:
    router = await made()
    store = await Store.open(await SQLiteRows.open(tmp_path / "memory.db"), kinds=Kinds(KINDS))
    memory = await Memory.open(store)
    stored = memory.patterns
    await load_patterns(router, memory)
    pattern = await router.correct("how do i bake bread", "driver")
    await stored.keep(pattern)
    await stored.keep(router.learn(pattern.id, True))
    example = next(iter(router.examples.of.values()))
    await stored.keep(router.learn(example.id, False))
    again = await made()
    await load_patterns(again, memory)
    assert len(await stored.all()) == 2
    assert patterns_of(again) == patterns_of(router)
    turned = await made(turn=7)
    await load_patterns(turned, memory)
    assert (await turned.route("how do i bake bread")).agent == "driver"
    assert (await stored.get(pattern.id)).vector == pytest.approx(turned.learned[pattern.id].vector)
    await store.close()


async def test_of_two_corrections_the_one_that_was_used_lately_counts_more() -> None:
    for old, new in (("driver", "cook"), ("cook", "driver")):
        router, store = await made(), await Store.open(VolatileRows(), kinds=Kinds(KINDS))
        memory = await Memory.open(store)
        stored = memory.patterns
        for text, agent in (("take bread home a", old), ("take bread home b", new)):
            pattern = await router.correct(text, agent)
            await stored.keep(pattern)
            if agent == old:
                await stored.edit(pattern.id, last_used=time.time() - 365 * 86400)
        again = await made()
        await load_patterns(again, memory)
        assert {p.agent: round(p.strength(time.time()), 3) for p in again.learned.of.values()} == {old: 0.5, new: 1.0}
        assert (await again.route("take bread home")).ranked[0][0] == new


async def test_many_patterns_are_searched_by_a_graph_that_is_read_at_the_next_start() -> None:
    kernel = WasmtimeHnswKernel(hnsw_kernel_path())
    memory = await Memory.open(await Store.open(VolatileRows(), kinds=Kinds(KINDS)), lambda: kernel)
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(list("abcdefghijklmnop"), 9)) for _ in range(1600)]
    agents = [AGENTS[number % 3] for number in range(len(texts))]
    vectors = await LetterEmbedder().embed(texts)
    many = [Pattern(f"p{n}", t, v, a) for n, (t, v, a) in enumerate(zip(texts, vectors, agents, strict=True))]
    await memory.patterns.add_many(many)
    scanning, building, reading = [await made(kernel) for _ in range(3)]
    (await load_patterns(scanning, memory)).forget()
    await load_patterns(building, memory)
    await memory.background.settled()

    await load_patterns(reading, memory)

    assert (scanning.learned.index.behind, reading.learned.index.behind) == (1600, 0)
    for text in texts[::100]:
        exact = await scanning.route(text + " z")
        for router in (building, reading):
            decision = await router.route(text + " z")
            assert (decision.agent, decision.neighbours[0]) == (exact.agent, exact.neighbours[0])
    pattern = await reading.correct(texts[5], "gardener")
    assert (await reading.route(texts[5])).agent == "gardener"
    assert reading.learned[pattern.id].agent == "gardener"


def test_the_head_tells_agents_by_words_and_by_vectors() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 8)).astype(np.float32)
    names = ["left" if vector[0] < 0 else "right" for vector in vectors]
    texts = [f"please {name} now" for name in names]
    head = fit_head(texts, vectors, names, words=0.5, ridge=0.1)
    for text, vector, name in zip(texts, vectors, names, strict=True):
        assert head.agents[int(np.argmax(head.scores("", vector)))] == name or abs(vector[0]) < 0.5
        assert head.agents[int(np.argmax(head.scores(text, 0 * vector)))] == name


@given(st.text(max_size=3000))
def test_buckets_of_any_text_are_ascending(text) -> None:
    found = buckets(text)
    assert (np.diff(found) > 0).all()
    assert len(found) > 0


def test_routing_data_are_read_as_written_and_others_refused() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((5, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    head = fit_head(["a", "b", "a b", "c", "d"], vectors, ["x", "y", "x", "y", "x"], words=0.5, ridge=1)
    file = write_routing_data(RoutingData("this", "those", vectors, head))
    assert file == write_routing_data(RoutingData("this", "those", vectors, head))
    data = read_routing_data(file, "this", "those")
    np.testing.assert_allclose(data.vectors, vectors, atol=1e-3)
    np.testing.assert_allclose(data.head.scores("a b", vectors[0]), head.scores("a b", vectors[0]), atol=5e-3)
    for fingerprint, examples, word in (("other", "those", "another embedder"), ("this", "other", "other examples")):
        with pytest.raises(RoutingDataError, match=word):
            read_routing_data(file, fingerprint, examples)
    with pytest.raises(RoutingDataError, match="cannot be read"):
        read_routing_data(file[:-9], "this", "those")


def test_parameters_that_cannot_be_are_refused() -> None:
    good = json.loads(json.dumps({**PARAMETERS.__dict__}))
    assert parameters_from_dict(good) == PARAMETERS
    for change, word in (
        ({"neighbours": 0}, "neighbours"),
        ({"neighbours": 2.5}, "whole"),
        ({"threshold": "much"}, "threshold"),
        ({"calibration": [1.0]}, "6 numbers"),
        ({"speed": 1}, "no parameter 'speed'"),
    ):
        with pytest.raises(ParametersError, match=word):
            parameters_from_dict({**good, **change})
    del good["votes"]
    with pytest.raises(ParametersError, match="lack votes"):
        parameters_from_dict(good)


async def test_the_real_router_learns_from_one_correction(made_files) -> None:
    router = await open_router()
    text = "my sourdough collapses when it goes into the oven, what am i doing wrong"
    before = await router.route(text)
    other = "planner" if before.ranked[0][0] != "planner" else "devops"
    await router.correct(text, other)
    for near in (text, "my sourdough always collapses in the oven, what do i do wrong?"):
        decision = await router.route(near)
        assert decision.agent == other, near
        assert decision.neighbours[0].text == text
    unlike = "kubernetes pod is stuck in CrashLoopBackOff after the last rollout"
    assert (await router.route(unlike)).ranked[0][0] == (await (await open_router()).route(unlike)).ranked[0][0]


async def test_the_real_router_knows_plain_requests(made_files) -> None:
    router = await open_router()
    for text, agent in {
        "write a python function that removes duplicates from a list": "coder",
        "write unit tests for this parser": "tester",
        "split this 900 line class into smaller ones without changing what it does": "refactorer",
        "plan the next three sprints for our team": "planner",
    }.items():
        decision = await router.route(text)
        assert decision.ranked[0][0] == agent, (text, decision.ranked[:3])
        assert decision.confidence > router_parameters().threshold
    assert (await router.route("write unit tests for this parser. " * 10_000)).ranked[0][0] == "tester"
    for text in ("hello", "how are you today", "see you tomorrow", "thanks, that helped", "you are nice"):
        decision = await router.route(text)
        assert decision.agent == FALLBACK_ID
        # Far from the threshold: processors round the embedder's products differently.
        assert decision.confidence < router_parameters().threshold / 2, text


async def test_a_users_own_agent_is_found_by_its_examples(made_files) -> None:
    gardener = {
        "id": "gardener", "title": "Gardener", "definition": "Plants.", "system_prompt": "You are a gardener.",
        "examples": ["when should i sow carrots", "what eats the leaves of my roses"],
    }  # fmt: skip
    router = await open_router(add_agent(shipped_agents(), no_changes(), gardener))
    assert (await router.route("when should I sow the carrots?")).agent == "gardener"
    without = await open_router(remove_agent(shipped_agents(), no_changes(), "coder"))
    assert "coder" not in without.agents
    assert "coder" not in dict((await without.route("write a python function")).ranked)


@pytest.mark.parametrize(("half", "least"), [("a", 0.95), ("b", 0.85)])
async def test_the_real_router_keeps_follow_ups_and_follows_changes_of_topic(made_files, half, least) -> None:
    found = (await measure_follow_ups(await open_router(), read_follow_ups()))[half]
    assert found["follow_ups"] >= least
    assert found["follow_ups_without"] < 0.5
    assert found["topic_changes"] >= 0.95
