"""The question of a message in the user's own words, with pasted text around it."""

from __future__ import annotations

import pytest

from app.lessons.facts import FactSplit, Pasted, facts, paragraphs, pasted
from py_core.learning.teaching.own_question import READ, own_question


@pytest.mark.parametrize("one", pasted(), ids=lambda one: one.kind)
def test_what_is_pasted_asks_nothing(one: Pasted) -> None:
    assert " ".join(own_question(one.text).split()) == one.own


@pytest.mark.parametrize("split", ["dev", "held", "common_dev"])
def test_other_words_for_a_question_are_a_question(split: FactSplit) -> None:
    asked = [text for fact in facts(split) for text in (fact.question, *fact.paraphrases)]
    assert [text for text in asked if own_question(text) != text] == []


def test_plain_prose_asks_nothing() -> None:
    prose = [*paragraphs("train"), *paragraphs("dev"), *paragraphs("held")]
    assert len([text for text in prose if own_question(text)]) <= 5  # of 65


OWN = """
wifi_password
Where's config.yaml on our server?
Who wrote "The Old Man and the Sea" in my book club?
"Where do I live?"
Hi Sonata,|where do I live
Tell me:|- where I live|- who my dentist is
I'm at the office door. I forgot the code.
Hello! I can't remember who my dentist is
Ich suche meinen Schlüssel. Kannst du helfen?
I live in Bonn, right?
Our wifi = ?
What does `make deploy prod` do at our place?
where do i live|thanks
李明是谁
"""


@pytest.mark.parametrize("text", OWN.strip().splitlines())
def test_a_question_in_own_words_stays_as_it_is(text: str) -> None:
    message = text.replace("|", "\n")
    assert own_question(message) == message


@pytest.mark.parametrize(
    ("message", "own"),
    [
        ("I park on level 3.", ""),
        ("I no longer eat fish. What is in season?", "What is in season?"),
        ("Summarise the following text:\n" + "The road is closed. " * 5, "Summarise the following text:"),
        ("Von: Ann\nBetreff: Fest\n\nWo wohnst du?\nAnn\n\nWo wohne ich?", "Wo wohne ich?"),
        ("Freitags esse ich keinen Fisch mehr. Was gibt es sonst?", "Was gibt es sonst?"),
        ("Explain `SELECT name FROM members` to me", "Explain to me"),
        ("Where do I live?\n```\n" + "Where is it?\n" * READ + "```\nThanks!", "Where do I live? Thanks!"),
        ("Who wrote this?\n" + "> Where do I live?\n" * READ, "Who wrote this?"),
        ("```\nWhere do I live?", ""),
        ("id\tquestion\n1\twhere do I live?\n2\twho is my boss?", ""),
        ("Ann: Where do I live?\nBob: In Bonn.\nAnn: Thanks!\n\nWho is my boss?", "Who is my boss?"),
        ("12:01 - Ann: who is my boss?\n12:02 - Bob: no idea\n12:03 - Ann: ok", ""),
        ("Translate into German: Who am I?\n\nAnd where do I live?", "Translate into German: And where do I live?"),
        ("Note: I am tired.\nQuestion: where do I live?", "Note: I am tired. Question: where do I live?"),
        ("\n" * 10 * READ, ""),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_what_stands_around_it_is_left_out(message: str, own: str) -> None:
    assert " ".join(own_question(message).split()) == own
