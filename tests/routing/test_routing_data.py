"""The routing test set (app/bench/routing_data) has the shape its README says."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "app" / "bench" / "routing_data" / "routing_test.toml"
# words that a request of the agent must not contain unless it is easy: its name, or a word that gives it away
OWN_WORDS = {
    "coder": r"code|coding",
    "researcher": r"research",
    "reviewer": r"review",
    "tester": r"test",
    "architect": r"architect",
    "security-architect": r"secur|architect",
    "debugger": r"debug",
    "documenter": r"document",
    "refactorer": r"refactor",
    "optimizer": r"optimi",
    "devops": r"dev ?ops",
    "api-docs": r"api|document",
    "planner": r"plan",
    "writer": r"writ(?:e|ing)",
    "translator": r"translat",
    "summarizer": r"summar",
    "explainer": r"expla",
    "extractor": r"extract",
}
AGENTS = frozenset(OWN_WORDS)
FEWER = frozenset(["writer", "translator", "summarizer", "explainer", "extractor"])
"""They have nine rows of each difficulty."""
ASSISTANT = "assistant"
LEAST_ROWS = {"easy": 6, "medium": 10, "hard": 10}  # of each agent


@pytest.fixture(scope="module")
def requests() -> list[dict[str, Any]]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))["request"]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def test_every_row_has_a_text_a_known_agent_and_a_difficulty(requests: list[dict[str, Any]]) -> None:
    for row in requests:
        assert set(row) - {"also"} == {"text", "agent", "difficulty"}, row
        assert isinstance(row["text"], str), row
        assert row["text"] == row["text"].strip() != "", row
        assert row["agent"] in AGENTS | {ASSISTANT}, row
        assert row["difficulty"] in LEAST_ROWS, row


def test_second_choices_are_other_known_agents(requests: list[dict[str, Any]]) -> None:
    for row in requests:
        also = row.get("also", [])
        assert set(also) <= AGENTS - {row["agent"]}, row
        assert len(also) == len(set(also)), row
        assert also or "also" not in row, row
        assert row["agent"] != ASSISTANT or not also, row


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_each_agent_has_enough_rows_of_each_difficulty(agent: str, requests: list[dict[str, Any]]) -> None:
    counts = Counter(row["difficulty"] for row in requests if row["agent"] == agent)
    for difficulty, least in LEAST_ROWS.items():
        assert counts[difficulty] >= (min(least, 9) if agent in FEWER else least), (difficulty, counts)


def test_no_agent_weighs_more_than_another(requests: list[dict[str, Any]]) -> None:
    """Otherwise accuracy over all rows would say little about a rare agent."""
    counts = Counter(row["agent"] for row in requests if row["agent"] != ASSISTANT)
    assert max(counts.values()) <= 1.2 * min(counts.values()), counts


def test_small_talk_is_there(requests: list[dict[str, Any]]) -> None:
    assert sum(row["agent"] == ASSISTANT for row in requests) >= 40


def test_no_row_repeats_another(requests: list[dict[str, Any]]) -> None:
    texts = Counter(" ".join(words(row["text"])) or row["text"] for row in requests)
    assert [text for text, count in texts.items() if count > 1] == []


def test_no_row_is_a_variation_of_another(requests: list[dict[str, Any]]) -> None:
    """Rows filled into one template share most of their words."""
    sets = [(row["text"], frozenset(words(row["text"]))) for row in requests]
    for (text, left), (other, right) in combinations([pair for pair in sets if len(pair[1]) >= 3], 2):
        assert len(left & right) / len(left | right) < 0.5, (text, other)


def test_rows_open_differently(requests: list[dict[str, Any]]) -> None:
    openings = Counter(tuple(words(row["text"])[:3]) for row in requests if len(words(row["text"])) > 3)
    assert [opening for opening, count in openings.items() if count > 3] == []


def test_only_easy_rows_say_the_agents_own_word(requests: list[dict[str, Any]]) -> None:
    for row in requests:
        if row["difficulty"] != "easy" and row["agent"] in OWN_WORDS:
            assert not re.search(rf"\b({OWN_WORDS[row['agent']]})", row["text"], re.IGNORECASE), row


def test_hard_rows_use_the_words_of_other_agents(requests: list[dict[str, Any]]) -> None:
    """A keyword router must be misled now and then, or the set would not distinguish it from a good one."""
    hard = [row for row in requests if row["difficulty"] == "hard" and row["agent"] in OWN_WORDS]
    misleading = [
        row
        for row in hard
        if any(
            re.search(rf"\b({own})", row["text"], re.IGNORECASE)
            for agent, own in OWN_WORDS.items()
            if agent != row["agent"]
        )
    ]
    assert len(misleading) >= 0.1 * len(hard), len(misleading)
