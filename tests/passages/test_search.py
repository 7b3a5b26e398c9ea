"""A question finds its passage, by its meaning and by rare words."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.native_runtime import open_embedder
from py_core.passages.search import PassageIndex
from py_core.passages.words import WordIndex
from tests.passages.asked import open_case


async def test_meaning_and_words_together_find_more_than_either() -> None:
    case = await open_case(open_embedder())
    both, meaning, words = (case.recall(way, 3) for way in ("both", "meaning", "words"))
    assert both >= 0.85 * len(case.asked)
    assert both > max(meaning, words)


async def test_small_talk_finds_nothing() -> None:
    embedder = open_embedder()
    case = await open_case(embedder)
    index = case.index()
    for said in ("Thanks!", "Hello", "Tell me a joke.", "How are you today?", "What is the capital of France?"):
        (meaning,) = await embedder.meanings([said])
        assert not index.search(said, meaning.vector), said


def test_names_and_numbers_are_found_by_their_words() -> None:
    index = PassageIndex(["The quick brown fox 12.", "Part A-113 is red.", "Ask Zoë Quill.", "駅は東京にあります。"])
    for question, number in (("What is A-113?", 1), ("zoe", 2), ("Which fox is the 12?", 0), ("東京", 3)):
        assert index.search(question, None)[0].number == number


def test_words_that_are_cut_at_the_end_of_a_line_or_have_soft_hyphens_are_found() -> None:
    index = PassageIndex(
        ["The ther\u00admostat.", "A recon\u00ad\n  struction.", "The cli-\nmate here.", "A well-\nknown one."]
    )
    asked = ("thermostat", 0), ("recon\u00adstruction", 1), ("climate", 2), ("well-known", 3), ("known", 3)
    for question, number in asked:
        assert index.search(question, None)[0].number == number


def test_until_every_passage_has_a_vector_words_decide() -> None:
    index = PassageIndex(["apples", "pears"])
    index.put(0, np.array([1, 0], np.float32))
    assert [found.number for found in index.search("pears", np.array([1, 0], np.float32))] == [1]
    assert index.lacking() == [1]
    index.put(1, np.array([0, 1], np.float32))
    found = index.search("fruit", np.array([1, 0], np.float32))
    assert found[0] == (0, 1.0)


@given(st.lists(st.text(), max_size=8), st.text())
def test_shares_of_words_are_from_0_to_1_for_any_texts(texts: list[str], question: str) -> None:
    shares = WordIndex(texts).shares(question)
    assert shares.shape == (len(texts),)
    assert ((shares >= 0) & (shares <= 1)).all()
