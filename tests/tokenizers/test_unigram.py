"""Unigram: the same ids as Hugging Face's `tokenizers` gives with the same pieces."""

from __future__ import annotations

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from py_core.tokenizers.unigram import KIND, SPACE, Unigram, UnigramError
from tests.random_examples import examples

PIECES = {
    "": 0.0, SPACE: -3.1, "a": -4.0, "b": -4.2, "e": -3.9, "n": -4.1, "ä": -6.3, "ß": -7.7, ".": -3.5,
    f"{SPACE}a": -4.6, f"{SPACE}ab": -6.1, "bä": -9.0, "ben": -7.2, f"{SPACE}eben": -8.4, "en": -5.0,
    "ne": -5.3, "aaa": -11.0, "5": -5.9,
    f"{SPACE}nebenan": -9.9, "1": -6.0, "/": -8.0, "fi": -8.8,
}  # fmt: skip
BEGIN, END, UNKNOWN = len(PIECES), len(PIECES) + 1, 0
TOLD = {
    "kind": KIND, "begin": BEGIN, "end": END, "unknown": UNKNOWN, "prefix": [2, 3],
    "pieces": [*PIECES, "", ""], "scores": [*PIECES.values(), 0.0, 0.0],
}  # fmt: skip
texts = st.one_of(
    st.text(st.sampled_from("abenäß. \u00a0\u3000ﬁ½5z駅"), max_size=60),
    st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cc", "Cs"]), max_size=30),
)


@pytest.fixture(scope="module")
def tokenizer() -> Unigram:
    return Unigram.from_json(json.dumps(TOLD))


@pytest.fixture(scope="module")
def peer() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(list(PIECES.items()), UNKNOWN, byte_fallback=False))
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces, normalizers.Strip()])
    made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    return made


@examples(300)
@given(text=texts)
def test_ids_are_the_peers_between_the_prefix_and_the_end(
    tokenizer: Unigram, peer: tokenizers.Tokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == [BEGIN, 2, 3, *peer.encode(text).ids, END]


def test_a_long_text_is_cut_off_and_what_has_no_width_is_a_space() -> None:
    short = Unigram.from_json(json.dumps(TOLD), max_tokens=6)
    assert short.encode("eben eben eben eben") == [BEGIN, 2, 3, 13, 13, END]
    assert short.encode("\u200beben\ufeff\x00") == [BEGIN, 2, 3, 13, END]
    assert short.encode("") == [BEGIN, 2, 3, END]
    assert len(Unigram.from_json(json.dumps(TOLD)).encode("a" * 100_000)) == 256


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"}, {"pieces": ["a"]}, {"scores": ["x"] * len(TOLD["pieces"])}, {"prefix": [99]}, {"end": -1},
        {"begin": True}, {"scores": [float("nan")] * len(TOLD["pieces"])}, {"pieces": [""] * len(TOLD["pieces"])},
    ],
)  # fmt: skip
def test_a_damaged_file_says_so(changes: dict[str, object]) -> None:
    for damaged in (json.dumps(TOLD | changes), "[]", "{", json.dumps({"kind": KIND})):
        with pytest.raises(UnigramError, match="damaged"):
            Unigram.from_json(damaged)
