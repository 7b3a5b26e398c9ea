"""Shared by the fuzzers: the number of examples, the earlier findings, and the allowed answers to bad input.

A fuzzer is a hypothesis test that reads untrusted input: the input is read, or refused with an error of ours in a
short sentence, within some memory. The gate draws few examples, `python build.py test --all` some hundred, and a
long run as many as requested: `FUZZ_EXAMPLES=20000 python build.py test --all tests/fuzz`. The time limit of a test
finds what hangs. Findings are stored in corpus/, a folder for each kind of input; every run reads it again.
"""

from __future__ import annotations

import os
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"
ROOM = 32 << 20
"""Bytes that reading an input of some hundred kilobytes may take."""

GATE = 10
ALL = 300
"""Number of examples of a reader that takes a millisecond; a slower one gets a share of them, see `fuzzed`."""
ASKED_FOR = int(os.environ.get("FUZZ_EXAMPLES", "0"))
LONGEST_SENTENCE = 1000


def fuzzed(
    *arguments: st.SearchStrategy[Any], share: float = 1.0
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Makes a test of a function of drawn arguments: a short run, and a longer one that is marked `all`.

    share: of the usual number of examples, if one takes long. A requested number is used unchanged.
    """
    short, longer = max(2, int(GATE * share)), ASKED_FOR or int(ALL * share)

    def test_of(body: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.no_cover
        @pytest.mark.parametrize(
            "examples",
            [
                pytest.param(short, id="gate"),
                pytest.param(longer, id="all", marks=[pytest.mark.all, pytest.mark.timeout(max(600, longer // 10))]),
            ],
        )
        def test(examples: int) -> None:
            patient = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
            patient(given(*arguments)(body))()

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return test_of


def found_before(folder: str) -> pytest.MarkDecorator:
    """Gives a test each `path` of a folder of the corpus."""
    paths = sorted((CORPUS / folder).iterdir())
    assert paths, f"nothing is in {CORPUS / folder}"
    return pytest.mark.parametrize("path", paths, ids=[path.name for path in paths])


@contextmanager
def read_or_refused(*errors: type[Exception], room: int = ROOM) -> Iterator[None]:
    """Asserts that the block succeeds or raises one of `errors`, in a sentence, and takes at most `room` bytes."""
    tracemalloc.start()
    try:
        yield
    except errors as error:
        check_sentence(str(error))
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < room


def check_sentence(words: str) -> None:
    """Asserts that it can be shown anywhere: short, and without control characters for a terminal."""
    assert 10 < len(words) < LONGEST_SENTENCE, f"{len(words)} characters: {words[:100]!r} ..."
    assert not any(unicodedata.category(c) == "Cc" for c in words if c != "\n"), repr(words)


texts = st.text(st.characters(codec="utf-8"), max_size=40)
hostile = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 7, 2**15, 2**20 + 1, 2**31 - 1, 2**32 - 1, 2**62]),
    st.floats(width=32),
    st.booleans(),
    texts,
    st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    st.lists(st.floats(width=32), max_size=5),
)
"""A value of another type or size than a setting should have: anything that GGUF can hold, and JSON nearly."""
