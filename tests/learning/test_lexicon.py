"""The gate of lessons sees what is asked for in German as in English, and takes no English text for German."""

from __future__ import annotations

import re

import pytest

from app.lessons.facts import facts, generic_prompts
from py_core.learning.gate.gate import asks_of_you
from py_core.learning.gate.lexicon import AMOUNT, ENGLISH, GERMAN, PERSON, PLACE, REASON, TIME, WAY, WHAT, lexicon_of
from py_core.learning.gate.words import Wording


def lexicon(text: str) -> object:
    return lexicon_of(re.findall(r"[^\W_]+", text.lower()))


@pytest.mark.parametrize(
    ("german", "english", "kind"),
    [
        ("Wer kauft unseren Honig?", "Who buys our honey?", PERSON),
        ("Um welche Uhrzeit treffen wir uns?", "At what time do we meet?", TIME),
        ("Wo lagern wir die Kostüme?", "Where do we store the costumes?", PLACE),
        ("Weshalb blinkt der Leuchtturm?", "Why does the lighthouse flash?", REASON),
        ("Wie dimme ich das Licht?", "How do I dim the lights?", WAY),
        ("Wie viele Saiten hat eine Geige?", "How many strings does a violin have?", AMOUNT),
        ("Was trinken Seeleute?", "What do sailors drink?", WHAT),
    ],
)
def test_a_question_asks_for_the_same_kind_in_both_languages(german: str, english: str, kind: int) -> None:
    assert lexicon(german) is GERMAN
    assert lexicon(english) is ENGLISH
    assert Wording(german, {}).asks == Wording(english, {}).asks == kind


def test_whose_it_is_and_what_is_no_name_is_seen_in_german() -> None:
    asked = Wording("Wie heißt meine Katze in Pellam?", {})
    assert (asked.mine, asked.my, asked.names) == (True, True, set())
    assert asks_of_you("Wie heißt deine Katze?", "Wie heißt meine Katze?")
    assert not asks_of_you("Wie heißt meine Katze?", "Wie heißt meine Katze?")
    assert Wording("Schreib ein Gedicht über den Herbst", {}).is_task


def test_no_english_fact_or_prompt_is_taken_for_german() -> None:
    texts = [text for split in ("train", "dev") for one in facts(split) for text in (one.question, *one.paraphrases)]
    texts += [row.prompt for row in generic_prompts("dev") if row.kind != "foreign"]
    assert [text for text in texts if lexicon(text) is GERMAN] == []
    german = [text for one in facts("held_de") for text in (one.question, *one.paraphrases)]
    assert [text for text in german if lexicon(text) is ENGLISH] == []
