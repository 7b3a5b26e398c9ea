"""The quality of an answer: each part, the user's feedback, and bounds for any input."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.learning.quality import AGAIN, FINISHED, WEIGHTS, kept_share, parts_of, quality_of

PROMPT = list(range(100, 140))
NUMBERS = st.floats(allow_nan=False) | st.none()


def test_each_part_shows_what_it_names() -> None:
    good = parts_of(list(range(20)), PROMPT, "end", -0.1, 0.5)
    assert good["fits"] == pytest.approx(0.5 / 0.6)
    assert good["coherent"] == pytest.approx(math.exp(-0.1))
    assert (good["diverse"], good["new"], good["finished"]) == (1.0, 1.0, 1.0)
    circles = parts_of([1, 2, 3, 4] * 10, PROMPT, "loop", -0.1, 0.5)
    assert circles["diverse"] == pytest.approx(4 / 37)
    assert circles["finished"] == 0
    parrot = parts_of(PROMPT[:20], PROMPT, "end", -0.1, 0.5)
    assert parrot["new"] == 0
    half = parts_of([*PROMPT[:8], *range(8)], PROMPT, "end", None, None)
    assert half["new"] == pytest.approx(8 / 13)
    assert (half["fits"], half["coherent"]) == (None, None)
    assert parts_of([7], PROMPT, "end", 0.0, 2.0) == dict.fromkeys(WEIGHTS, 1.0)
    assert parts_of([], PROMPT, "error", None, None) | {"finished": None} == {
        "fits": None, "coherent": None, "diverse": 0.0, "new": 0.0, "finished": None
    }  # fmt: skip


def test_a_part_that_is_worse_makes_the_score_worse_and_an_unknown_one_does_not_count() -> None:
    whole = dict.fromkeys(WEIGHTS, 0.8)
    assert quality_of(whole) == pytest.approx(0.8)
    for name in WEIGHTS:
        assert quality_of({**whole, name: 0.1}) < 0.8
        assert quality_of({**whole, name: None}) == pytest.approx(0.8)
    assert quality_of(dict.fromkeys(WEIGHTS)) is None
    assert quality_of(whole, again=True) == pytest.approx(0.8 * AGAIN)


def test_what_the_person_said_counts_alone() -> None:
    for parts in (dict.fromkeys(WEIGHTS, 0.1), dict.fromkeys(WEIGHTS, 1.0), {}):
        assert quality_of(parts, "good", again=True) == 1.0
        assert quality_of(parts, "bad") == 0.0
        assert quality_of(parts, "corrected", 0.5) == 0.25
        assert quality_of(parts, "corrected", None) == 0.0


def test_a_correction_keeps_the_words_that_are_in_it_in_the_same_order() -> None:
    assert kept_share("Your boat is the Pelican.", "your boat is the Heron") == pytest.approx(4 / 5)
    assert kept_share("Dr. Quill", "Dr. Quill") == 1.0
    assert kept_share("one two three", "three two one") == pytest.approx(1 / 3)
    assert kept_share("", "anything") == 0.0


@given(
    st.lists(st.integers(0, 5), max_size=60), st.lists(st.integers(0, 5), max_size=60),
    st.sampled_from([*FINISHED, "", "lost"]), NUMBERS, NUMBERS, st.sampled_from(["", "good", "bad", "corrected"]),
    st.floats(0, 1) | st.none(), st.booleans(),
)  # fmt: skip
def test_every_part_and_the_score_are_from_0_to_1(
    answer: list[int], prompt: list[int], reason: str, logprob: float | None, similarity: float | None,
    feedback: str, kept: float | None, again: bool,
) -> None:  # fmt: skip
    parts = parts_of(answer, prompt, reason, logprob, similarity)
    assert parts.keys() == WEIGHTS.keys()
    score = quality_of(parts, feedback, kept, again)
    assert score is not None
    assert all(value is None or 0 <= value <= 1 for value in (*parts.values(), score))


@given(st.text(max_size=80), st.text(max_size=80))
def test_the_share_that_was_kept_is_from_0_to_1(answer: str, corrected: str) -> None:
    assert 0 <= kept_share(answer, corrected) <= 1
