"""The shipped agents and their examples as data, invalid ones, and the user's changes on top of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.keyword_router import KEYWORDS, KeywordRouter, word_pattern
from app.building.common import ROOT
from app.building.python.archives import python_sources
from app.routing.agent_catalog import (
    add_agent,
    current_agents,
    current_examples,
    edit_agent,
    no_changes,
    remove_agent,
    reset_agent,
    restore_agent,
    shipped_agents,
    shipped_examples,
)
from py_core.routing.agents import (
    FALLBACK_ID,
    Agent,
    AgentError,
    agent_from_dict,
    agent_to_dict,
    agents_from_dicts,
    examples_from_dicts,
)
from py_core.sampling import SamplingParams

SHIPPED = shipped_agents()
EXAMPLES = shipped_examples()
ROUTED = [
    "writer", "translator", "summarizer", "explainer", "extractor", "planner", "coder", "researcher", "reviewer",
    "tester", "architect", "security-architect", "debugger", "documenter", "refactorer", "optimizer", "devops",
    "api-docs",
]  # fmt: skip
FEWER = frozenset(ROUTED[:5])
"""These agents have fewer examples than the others."""
GARDENER: dict[str, Any] = {
    "id": "gardener",
    "title": "Gardener",
    "definition": "Knows plants.",
    "system_prompt": "You are a gardener.",
    "max_tokens": 300,
    "sampling": {"temperature": 0.5, "top_p": 0.9},
    "examples": ["my tomatoes have brown spots", "when to cut roses"],
}

# The data


def test_eighteen_agents_and_the_fallback_are_shipped() -> None:
    assert [agent.id for agent in agents_from_dicts(SHIPPED)] == [FALLBACK_ID, *ROUTED]


def test_every_agent_has_examples_and_no_one_else() -> None:
    assert {example.agent for example in EXAMPLES} == {FALLBACK_ID, *ROUTED}


@pytest.mark.parametrize("agent", ROUTED)
def test_examples_are_many_and_of_many_meanings(agent: str) -> None:
    groups = Counter(example.group for example in EXAMPLES if example.agent == agent)
    assert sum(groups.values()) >= (120 if agent in FEWER else 170)
    assert len(groups) >= (35 if agent in FEWER else 40)
    assert max(groups.values()) <= 8, "a group is a few ways to say one thing"


def test_no_request_occurs_twice() -> None:
    places = defaultdict(list)
    for example in EXAMPLES:
        places[" ".join(re.findall(r"\w+", example.text.casefold()))].append((example.agent, example.text))
    assert [same for same in places.values() if len(same) > 1] == []


def names_agent(text: str, agent: str) -> bool:
    """True if a request contains the agent's name or one of its obvious keywords."""
    return any(word_pattern(word).search(text) for word in (agent.replace("-", " "), *KEYWORDS[agent]["obvious"]))


@pytest.mark.parametrize("agent", ROUTED)
def test_less_than_half_of_the_requests_hold_the_agents_obvious_keyword(agent: str) -> None:
    texts = [example.text for example in EXAMPLES if example.agent == agent]
    assert sum(names_agent(text, agent) for text in texts) < len(texts) / 2


@pytest.mark.parametrize("agent", ROUTED)
def test_a_fifth_of_the_requests_is_hard_and_holds_no_obvious_keyword(agent: str) -> None:
    own = [example for example in EXAMPLES if example.agent == agent]
    hard = [example.text for example in own if example.hard]
    assert len(hard) >= len(own) / (6.2 if agent in FEWER else 5.5)
    assert [text for text in hard if names_agent(text, agent)] == []


@pytest.mark.parametrize("topic", ["login|sign.?in", "shop|cart|checkout", "csv|sheet|excel", "bot|chat", "game|unity"])
def test_a_topic_occurs_under_most_agents(topic: str) -> None:
    agents = {example.agent for example in EXAMPLES if re.search(topic, example.text, re.IGNORECASE)}
    assert len(agents) >= 11, sorted(set(ROUTED) - agents)


# Reading


def test_an_agent_survives_dict_and_json() -> None:
    for agent in agents_from_dicts([*SHIPPED, GARDENER]):
        assert agent_from_dict(json.loads(json.dumps(agent_to_dict(agent)))) == agent


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"promt": "x"}, "agent 'gardener' has an unknown key 'promt'; the known keys are id, title,"),
        ({"id": "Head Gardener"}, "'Head Gardener' cannot be an agent's id: use up to 40 lower-case letters"),
        ({"id": "-x"}, "cannot be an agent's id"),
        ({"id": "x\n"}, "cannot be an agent's id"),
        ({"id": ""}, "agent '' needs the key id"),
        ({"title": " "}, "agent 'gardener' needs the key title, with a text that is not empty"),
        ({"system_prompt": ""}, "agent 'gardener' needs the key system_prompt, with a text that is not empty"),
        ({"definition": 3}, "agent 'gardener' needs the key definition"),
        ({"system_prompt": "x" * 9000}, "The system_prompt of agent 'gardener' has 9,000 characters; at most 8,000"),
        ({"max_tokens": 0}, "max_tokens of agent 'gardener' is 0, but must be a whole number"),
        ({"max_tokens": True}, "max_tokens of agent 'gardener' is True"),
        (
            {"sampling": {"temperature": -1}},
            "agent 'gardener': temperature is -1, but must be 0 (always the likeliest token) or more",
        ),
        ({"sampling": {"top_p": 0}}, "agent 'gardener': top_p is 0, but must be above 0 and at most 1"),
        ({"sampling": {"top_p": float("nan")}}, "agent 'gardener': top_p is nan"),
        ({"sampling": {"top_k": 1.5}}, "agent 'gardener': top_k is 1.5, but must be a whole number"),
        ({"sampling": {"temperature": "hot"}}, "agent 'gardener': temperature is 'hot', but must be a number"),
        ({"sampling": {"temprature": 1}}, "The sampling of agent 'gardener' has an unknown key 'temprature'"),
        ({"sampling": 1}, "The sampling of agent 'gardener' must be a table"),
        ({"examples": "one"}, "The examples of agent 'gardener' must be a list of texts"),
        ({"examples": ["a", " "]}, "Example 2 of agent 'gardener' must be a text"),
    ],
)
def test_a_mistake_in_an_agent_is_a_sentence_that_names_it(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AgentError, match=re.escape(sentence)) as error:
        agent_from_dict({**GARDENER, **change})
    assert str(error.value).endswith((".", "examples"))


def test_an_id_that_occurs_twice_is_refused() -> None:
    with pytest.raises(AgentError, match="two agents with the id 'coder'"):
        agents_from_dicts([*SHIPPED, next(entry for entry in SHIPPED if entry["id"] == "coder")])


def test_agents_without_the_fallback_are_refused() -> None:
    with pytest.raises(AgentError, match="agent 'assistant' is missing"):
        agents_from_dicts([GARDENER])


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(AgentError, match="An agent must be a table"):
        agents_from_dicts(["coder"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"text": "", "group": 1}, "Example 2 of agent 'coder' needs a text"),
        ({"text": "x"}, "Example 2 of agent 'coder' has the group None"),
        ({"text": "x", "group": 0}, "has the group 0, but a group must be a whole number, 1 or more"),
        ({"text": "x", "group": 1, "hard": "yes"}, "has hard = 'yes', but hard must be true or false"),
        ({"text": "x", "group": 1, "agent": "coder"}, "Example 2 of agent 'coder' has an unknown key 'agent'"),
        ({"text": "x" * 9000, "group": 1}, "has 9,000 characters"),
    ],
)
def test_a_mistake_in_an_example_is_a_sentence_with_its_number(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AgentError, match=re.escape(sentence)):
        examples_from_dicts("coder", [{"text": "fine", "group": 1}, row])


@pytest.mark.parametrize("read", [shipped_agents, lambda path: shipped_examples(path.parent)])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[[agent", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"x = 1", "tables and nothing else"),
        (b"agent = 1", "tables and nothing else"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, read: Callable[[Path], Any], content: bytes, sentence: str) -> None:
    path = tmp_path / "coder.toml"
    path.write_bytes(content)
    with pytest.raises(AgentError, match=sentence) as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"none\.toml cannot be read"):
        shipped_agents(tmp_path / "none.toml")


def test_the_archive_for_the_page_holds_agents_and_examples(tmp_path: Path) -> None:
    for name, content in python_sources(ROOT).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    program = (
        "import app.routing.agent_catalog as a; print(a.__file__, len(a.shipped_agents()), len(a.shipped_examples()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [
        str(tmp_path / "app/routing/agent_catalog.py"),
        str(len(SHIPPED)),
        str(len(EXAMPLES)),
    ], done.stderr


# The user's changes


def _find(changes: dict[str, Any], agent_id: str) -> Agent:
    return next(agent for agent in current_agents(SHIPPED, changes) if agent.id == agent_id)


def test_an_added_agent_comes_last_and_brings_its_examples() -> None:
    agents = current_agents(SHIPPED, add_agent(SHIPPED, no_changes(), GARDENER))
    assert agents[-1] == agent_from_dict(GARDENER)
    own = [example for example in current_examples(agents, EXAMPLES) if example.agent == "gardener"]
    assert [(example.text, example.group) for example in own] == list(zip(GARDENER["examples"], (1, 2), strict=True))


def test_an_edit_changes_only_what_is_given() -> None:
    shipped = [{**entry, "sampling": {"frequency_penalty": 0.3}} for entry in SHIPPED]
    changes = edit_agent(shipped, no_changes(), "coder", {"title": "Hacker", "sampling": {"temperature": 0.7}})
    after = next(agent for agent in current_agents(shipped, changes) if agent.id == "coder")
    assert (after.title, after.sampling) == ("Hacker", SamplingParams(temperature=0.7, frequency_penalty=0.3))
    assert after.system_prompt == _find(no_changes(), "coder").system_prompt


def test_an_edited_agent_follows_the_next_version_in_what_was_left_alone() -> None:
    changes = edit_agent(SHIPPED, no_changes(), "coder", {"title": "Hacker"})
    newer = [{**entry, "definition": "New.", "title": "New"} for entry in SHIPPED]
    coder = next(agent for agent in current_agents(newer, changes) if agent.id == "coder")
    assert (coder.title, coder.definition) == ("Hacker", "New.")


def test_edits_of_an_agent_that_is_not_shipped_any_more_wait_for_it() -> None:
    changes = edit_agent(SHIPPED, no_changes(), "coder", {"title": "Hacker"})
    older = [entry for entry in SHIPPED if entry["id"] != "coder"]
    assert "coder" not in [agent.id for agent in current_agents(older, changes)]
    again = remove_agent(older, changes, "planner")
    assert _find(again, "coder").title == "Hacker"


def test_examples_given_to_a_shipped_agent_join_its_own() -> None:
    changes = edit_agent(SHIPPED, no_changes(), "planner", {"examples": ["when do i sow beans"]})
    own = [e for e in current_examples(current_agents(SHIPPED, changes), EXAMPLES) if e.agent == "planner"]
    assert own[-1].text == "when do i sow beans"
    assert own[-1].group not in {example.group for example in own[:-1]}


def test_a_removed_agent_is_gone_with_its_examples_and_comes_back_as_it_was() -> None:
    edited = edit_agent(SHIPPED, no_changes(), "tester", {"title": "Tess"})
    removed = remove_agent(SHIPPED, edited, "tester")
    agents = current_agents(SHIPPED, removed)
    assert "tester" not in {agent.id for agent in agents}
    assert "tester" not in {example.agent for example in current_examples(agents, EXAMPLES)}
    assert _find(restore_agent(removed, "tester"), "tester").title == "Tess"


def test_reset_goes_back_to_the_shipped_agent() -> None:
    edited = edit_agent(SHIPPED, no_changes(), "tester", {"title": "Tess"})
    assert current_agents(SHIPPED, reset_agent(SHIPPED, edited, "tester")) == current_agents(SHIPPED, no_changes())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: remove_agent(SHIPPED, c, FALLBACK_ID), "can be edited but not removed"),
        (lambda c: remove_agent(SHIPPED, c, "nobody"), "There is no agent 'nobody'. The agents are assistant, writer,"),
        (lambda c: remove_agent(SHIPPED, c, "planner"), "There is no agent 'planner'"),
        (lambda c: edit_agent(SHIPPED, c, "planner", {"title": "x"}), "There is no agent 'planner'"),
        (lambda c: edit_agent(SHIPPED, c, "coder", {"id": "x"}), "The id of agent 'coder' cannot change"),
        (lambda c: edit_agent(SHIPPED, c, "coder", {"system_prompt": ""}), "needs the key system_prompt"),
        (lambda c: edit_agent(SHIPPED, c, "coder", {"sampling": {"top_p": 2}}), "top_p is 2"),
        (lambda c: add_agent(SHIPPED, c, {**GARDENER, "id": "coder"}), "There is already an agent 'coder'"),
        (lambda c: add_agent(SHIPPED, c, GARDENER), "There is already an agent 'gardener'"),
        (lambda c: add_agent(SHIPPED, c, {**GARDENER, "id": "planner"}), "agent 'planner' was removed: restore it"),
        (lambda c: restore_agent(c, "coder"), "Agent 'coder' was not removed"),
        (lambda c: reset_agent(SHIPPED, c, "gardener"), "did not come with Sonata"),
        (lambda c: current_agents(SHIPPED, {"agents": []}), "are damaged"),
        (lambda c: current_agents(SHIPPED, {"hidden": "planner"}), "are damaged"),
    ],
)
def test_a_change_that_cannot_be_made_is_a_sentence(change: Callable[[Any], Any], sentence: str) -> None:
    changes = remove_agent(SHIPPED, add_agent(SHIPPED, no_changes(), GARDENER), "planner")
    before = json.dumps(changes)
    with pytest.raises(AgentError, match=re.escape(sentence)):
        change(changes)
    assert json.dumps(changes) == before


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "edit", "remove", "restore", "reset"]),
        st.sampled_from([FALLBACK_ID, "coder", "api-docs", "planner", "gardener", "nurse"]),
        st.sampled_from(["One", "Two", "Three"]),
    ),
    max_size=25,
)


@given(steps)
def test_any_sequence_of_changes_gives_what_a_simple_model_says(sequence: list[tuple[str, str, str]]) -> None:
    titles: dict[str, str] = {entry["id"]: entry["title"] for entry in SHIPPED}  # of all known agents, hidden or not
    shipped_titles, hidden, changes = dict(titles), set[str](), no_changes()
    for verb, agent_id, title in sequence:
        before = json.dumps(changes)
        ships, there = agent_id in shipped_titles, agent_id in titles and agent_id not in hidden
        allowed = {
            "add": agent_id not in titles,
            "edit": there,
            "remove": there and agent_id != FALLBACK_ID,
            "restore": agent_id in hidden,
            "reset": ships,
        }[verb]
        make: dict[str, Callable[[], dict[str, Any]]] = {
            "add": lambda: add_agent(SHIPPED, changes, {**GARDENER, "id": agent_id, "title": title}),  # noqa: B023
            "edit": lambda: edit_agent(SHIPPED, changes, agent_id, {"title": title}),  # noqa: B023
            "remove": lambda: remove_agent(SHIPPED, changes, agent_id),  # noqa: B023
            "restore": lambda: restore_agent(changes, agent_id),  # noqa: B023
            "reset": lambda: reset_agent(SHIPPED, changes, agent_id),  # noqa: B023
        }
        if not allowed:
            with pytest.raises(AgentError):
                make[verb]()
            continue
        after = json.loads(json.dumps(make[verb]()))
        assert json.dumps(changes) == before, "changes are made in a copy"
        changes = after
        if verb in ("add", "edit"):
            titles[agent_id] = title
        elif verb == "reset":
            titles[agent_id] = shipped_titles[agent_id]
        elif verb == "remove" and ships:
            hidden.add(agent_id)
        elif verb == "remove":
            del titles[agent_id]
        else:
            hidden.discard(agent_id)
        seen = {agent.id: agent.title for agent in current_agents(SHIPPED, changes)}
        assert seen == {id_: title for id_, title in titles.items() if id_ not in hidden}


# The peer


def test_the_keyword_router_knows_every_agent_and_prefers_the_one_that_is_named() -> None:
    router = KeywordRouter()
    assert router.agents == ROUTED
    assert router.rank("please debug this crash")[0][0] == "debugger"
    assert router.rank("write the OpenAPI of this endpoint")[0][0] == "api-docs"


def test_the_keyword_router_learns_words_from_examples() -> None:
    known = [example for example in EXAMPLES if example.group % 4]
    unseen = [example for example in EXAMPLES if not example.group % 4]

    def accuracy(router: KeywordRouter) -> float:
        return sum(router.rank(example.text)[0][0] == example.agent for example in unseen) / len(unseen)

    assert accuracy(KeywordRouter(known)) > accuracy(KeywordRouter()) + 0.05 > 0.3
