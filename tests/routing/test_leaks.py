"""Requests of the routing test set are not examples of any agent: neither word for word nor nearly."""

from __future__ import annotations

import re
import tomllib

import pytest

from app.bench.routing import TEST_SET, read_everyday
from app.routing.agent_catalog import shipped_examples
from app.routing.factory import more_requests

NEARLY = 0.8
"""The share of words that two have in common."""


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold())) or frozenset({text.strip()})


def nearly_equal(first: frozenset[str], second: frozenset[str]) -> bool:
    if min(len(first), len(second)) < NEARLY * max(len(first), len(second)):
        return False
    return len(first & second) >= NEARLY * len(first | second)


def leaks(asked: list[str], known: list[str]) -> list[tuple[str, str]]:
    sets = [(text, words(text)) for text in known]
    wanted = [(text, words(text)) for text in asked]
    return [(text, other) for text, its in wanted for other, of in sets if nearly_equal(its, of)]


@pytest.fixture(scope="module")
def asked() -> list[dict]:
    return tomllib.loads(TEST_SET.read_text(encoding="utf-8"))["request"]


def known() -> list[str]:
    return [example.text for example in shipped_examples() + more_requests()]


@pytest.mark.all
def test_no_row_is_nearly_what_the_router_was_made_of(asked) -> None:
    # short small talk is the same wherever it is typed: one word says nothing about the rest
    assert leaks([row["text"] for row in asked if len(words(row["text"])) > 2], known()) == []


def test_no_everyday_request_is_nearly_what_the_router_was_made_of() -> None:
    assert leaks([row["text"] for row in read_everyday() if len(words(row["text"])) > 2], known()) == []


def test_a_leak_would_be_found(asked) -> None:
    row = next(row["text"] for row in asked if len(words(row["text"])) > 8)
    assert leaks([row.upper() + "!"], [row]) == [(row.upper() + "!", row)]
