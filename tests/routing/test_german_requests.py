"""The German test sets translate rows of the English ones."""

from __future__ import annotations

import re
from collections import Counter

from app.bench.routing import GERMAN_TEST_SET, read_test_set
from app.lessons.facts import facts
from py_core.routing.agents import FALLBACK_ID
from tests.bench.memory.languages import FACTS


def test_each_request_translates_one_of_its_agent_and_difficulty() -> None:
    english = {row["text"]: (row["agent"], row["difficulty"]) for row in read_test_set()}
    german = read_test_set(GERMAN_TEST_SET)
    assert [row["text"] for row in german if english[row["english"]] != (row["agent"], row["difficulty"])] == []
    assert len({row["text"] for row in german}) == len({row["english"] for row in german}) == 156
    counts = Counter(row["agent"] for row in german)
    assert counts.pop(FALLBACK_ID) == 12
    assert set(counts.values()) == {8}


def test_each_fact_has_as_many_wordings_as_in_english_and_the_same_numbers() -> None:
    german = facts("held_de")
    assert len(german) == FACTS
    for one, other in zip(german, facts("held"), strict=False):
        assert len(one.paraphrases) == len(other.paraphrases)
        assert len(one.near) == len(other.near)
        numbers = [re.findall(r"\d+", text.replace(",", "")) for text in (one.answer, other.answer)]
        assert numbers[0] == numbers[1], one
