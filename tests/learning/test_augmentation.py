"""Questions are rephrased in many ways, which are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.learning.augmentation import Mix, RandomAsker, dropped, keywords, opened, with_synonyms
from py_core.learning.lesson_examples import Kept, Portions, TaughtAnswer, examples_of

QUESTION = "What is the name of the harbour where our boat stays in autumn?"
WAYS = ("plain", "framed", "opened", "synonyms", "dropped", "mixed", "keywords", "sampled")


def asked(mix: Mix, seed: int, count: int = 40) -> list[str]:
    draw, asker = np.random.default_rng(seed), RandomAsker(mix)
    return [asker.ask(QUESTION, draw, ("Where is our boat?",)) for _ in range(count)]


def test_the_same_seed_asks_in_the_same_ways_and_there_are_many() -> None:
    assert asked(Mix(), 1) == asked(Mix(), 1)
    assert len(set(asked(Mix(), 1))) > 25
    assert asked(Mix(), 1) != asked(Mix(), 2)


def test_each_way_does_what_it_is_called() -> None:
    draw = np.random.default_rng(0)
    assert set(asked(Mix(**{way: float(way == "plain") for way in WAYS}), 0)) == {QUESTION}
    assert all(QUESTION in text for text in asked(Mix(**{way: float(way == "framed") for way in WAYS}), 0))
    assert all("Where is our boat?" in text for text in asked(Mix(**{way: float(way == "sampled") for way in WAYS}), 0))
    assert opened("Where is the raft?", draw) != "Where is the raft?"
    assert "raft" in opened("Where is the raft?", draw)
    assert keywords("Where is the raft of our boat?") == "Where raft our boat"
    assert {with_synonyms("my car", np.random.default_rng(seed)) for seed in range(20)} >= {"my car", "my vehicle"}
    assert 1 <= len(dropped(QUESTION, draw, 0.9).split()) < len(QUESTION.split())


@given(st.text(min_size=1).filter(lambda text: text.strip()), st.integers(0, 100))
def test_whatever_is_taught_can_be_asked(question: str, seed: int) -> None:
    draw, asker = np.random.default_rng(seed), RandomAsker(Mix())
    assert all(asker.ask(question, draw).strip() for _ in range(20))


async def test_each_step_has_new_lessons_old_ones_a_text_and_an_answer_and_good_lessons_count_more() -> None:
    async def prompt(question: str) -> list[int]:
        return [1, 2, *question.encode()[:20], 3]

    new = [TaughtAnswer(f"n{at}", f"New {at}?", (100 + at, 7), 1.0 if at else 0.5) for at in range(6)]
    old = [TaughtAnswer(f"o{at}", f"Old {at}?", (200 + at, 7)) for at in range(4)]
    kept = [Kept((1,), (4, 5, 6))]
    portions = Portions(a_step=8, rehearsed=3, rounds_again=10, least_steps=1)

    async def steps(seed: int) -> list:
        return await examples_of(portions, new, old, kept, kept, prompt, seed, 512)

    found = await steps(1)
    assert len(found) == portions.steps(6, 4) == 12
    for step in found:
        assert [one.tokens[-2] // 100 for one in step[:8]] == [1] * 5 + [2] * 3
        assert sum(sum(one.kl_weights) for one in step) == pytest.approx(portions.divergence)
    weights = {one.tokens[-2]: one.weights[-1] for step in found for one in step[:8]}
    assert weights[100] == 0.5
    assert weights[101] == weights[200] == 1.0
    assert [one.tokens for step in await steps(1) for one in step] == [one.tokens for step in found for one in step]
    assert [one.tokens for step in await steps(2) for one in step] != [one.tokens for step in found for one in step]
