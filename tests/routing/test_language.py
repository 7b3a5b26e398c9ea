"""The language of a request."""

from __future__ import annotations

import pytest

from app.bench.routing import read_everyday
from py_core.routing.language import has_code, is_english


def test_everyday_requests_are_told_by_their_language() -> None:
    wrong = [row["text"] for row in read_everyday() if is_english(row["text"]) != (row["language"] == "en")]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "Übersetze ins Englische: I am hungry and would like to eat something now",
        "Mach es kürzer",
        "¿Qué cocino hoy con patatas?",
        "Écris une lettre à mon propriétaire",
        "Scrivi una poesia per la nonna",
        "Schrijf een brief aan mijn buurman",
        "напиши письмо соседу",
        "猫がご飯を食べません",
    ],
)
def test_other_languages_are_no_english(text: str) -> None:
    assert not is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "Photosynthesis",
        "over",
        "Translate into English: Ich habe Hunger und möchte etwas essen",
        'What does "Über allen Gipfeln ist Ruh" mean?',
        "the café's menu, naïve as it is",
        "My name is André and I live in Düsseldorf, write me a short bio",
    ],
)
def test_english_is_english_whatever_it_quotes(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "```\nx = 1\n```",
        "TypeError: 'NoneType' object is not callable",
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>',
        "    at java.base/java.util.ArrayList.get(ArrayList.java:427)",
        "diff --git a/x b/x",
        "@@ -1,4 +1,5 @@",
        "warum stürzt das ab: int a[3]; a[3] = 1;",
        "select name from users where id = 3",
        "kill -9 frisst meine session_id",
        "schau in config.yaml",
    ],
)
def test_code_is_seen(text: str) -> None:
    assert has_code(text)


def test_everyday_requests_have_no_code() -> None:
    assert [row["text"] for row in read_everyday() if has_code(row["text"])] == []
