"""Answers that loop are distinguished from answers that only repeat a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.engine.repetition import LOOP_SCORE, NGRAM, LoopDetector
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.registry import tokenizer_from_gguf

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> Tokenizer:
    return tokenizer_from_gguf(asyncio.run(read_header(FileSource(model_path))).metadata)


def find_loop(ids: Sequence[int]) -> tuple[int, int] | None:
    """The number of tokens until the loop is found, and the number before its third round."""
    detector = LoopDetector()
    for index, token in enumerate(ids):
        if (begin := detector.push(token)) is not None:
            return index + 1, begin
    return None


@given(before=st.integers(0, 300), period=st.integers(1, 120))
def test_what_repeats_without_a_change_is_found_and_the_first_two_times_are_kept(before: int, period: int) -> None:
    text = list(range(1000, 1000 + before))
    found, begin = find_loop([*text, *list(range(period)) * 400]) or (0, 0)
    assert begin == before + 2 * period
    assert found == begin + NGRAM + LOOP_SCORE - 1


@given(words=st.integers(16, 60))
def test_rows_that_change_in_a_number_only_are_a_loop(words: int) -> None:
    numbers = count(1000)
    rows = [token for _ in range(80) for token in (*range(words), next(numbers))]
    assert find_loop(rows) is not None


@given(words=st.integers(1, 8))
def test_rows_in_which_every_ninth_token_is_new_are_not(words: int) -> None:
    numbers = count(1000)
    rows = [token for _ in range(500) for token in (*range(words), next(numbers))]
    assert find_loop(rows) is None


@given(st.lists(st.integers(0, 50000), unique=True, max_size=1000))
def test_any_text_may_be_given_twice(text: list[int]) -> None:
    assert find_loop(text * 2) is None


@given(st.lists(st.integers(0, 1), max_size=LOOP_SCORE))
def test_a_short_answer_is_no_loop_whatever_it_says(text: list[int]) -> None:
    assert find_loop(text) is None


@given(
    head=st.lists(st.integers(0, 3), max_size=300), unit=st.lists(st.integers(0, 50), min_size=1, max_size=60)
)  # fmt: skip
def test_a_loop_is_found_late_enough_to_have_been_said_twice(head: list[int], unit: list[int]) -> None:
    text = head + unit * (2 + -(-2 * (LOOP_SCORE + NGRAM) // len(unit)))
    found = find_loop(text)
    assert found is not None
    seen, begin = found
    third = text[begin : begin + NGRAM]
    earlier = [text[at : at + NGRAM] for at in range(begin)]
    assert earlier.count(third) >= 2
    assert seen - begin > LOOP_SCORE


@pytest.mark.parametrize(
    "text",
    [
        "|" + "---|" * 12 + "\n",
        "ha " * 60,
        "I will not talk in class.\n" * 20,
        "".join(f"{number}. item\n" for number in range(100)),
        "".join(f"7 x {number} = {7 * number}\n" for number in range(60)),
        "".join(f"  <li>{number} of 40</li>\n" for number in range(40)),
        "".join(f"INSERT INTO users (id, name) VALUES ({at}, 'user {at}');\n" for at in range(40)),
        *(
            (ROOT / path).read_text()
            for path in ("docs/guide/security.md", "app/routing/agents/agents.toml", "build.py")
        ),
    ],
    ids=["separator", "laughter", "lines", "list", "products", "html", "sql", "prose", "data", "code"],
)  # fmt: skip
def test_ordinary_repetition_is_no_loop(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    for start in range(0, len(ids), 1024):
        assert find_loop(list(islice(ids, start, start + 1024))) is None
