"""WordPiece: the same ids as Hugging Face's `tokenizers` gives from the embedder's own tokenizer.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from py_core.tokenizers import unicode_ranges
from py_core.tokenizers.wordpiece import MAX_TOKENS, WordPiece, WordPieceError
from tests.random_examples import examples

PIECES = [
    "unaffable", "strange", "naïve", "Ångström", "ÇA VA", "don't", "C++", "e.g.", "3.14", "$100", "a_b", "x=y",
    "\u4e2d\u6587", "日本語のテキスト", "한국어", "İstanbul", "ΣΑΣ", "ß", "ﬁ", "é", "e\u0301", "\u0301",
    "\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7", "\u2615\ufe0f", "हिन्दी", "ไทย", "ــ",
    "\u200b", "\u200d", "\ufeff", "\xad", "\x00", "\x85", "\x1c", "\x0b", "\x7f", "\ufffd", "\u2028", "\u3000", "\xa0",
    "\t", "\n", "\r\n", " ", "  ", "[SEP]", "[CLS]", "[UNK]", "[MASK]", "[PAD]", "##ing", "##", "\uf900", "\U0002f800",
    "²", "½", "Ⅷ", "؟", "।", "…", "—", "''", "``", "\U000e0041",
    "a" * 99, "a" * 100, "a" * 101, "é" * 100, "x" * 300,
]  # fmt: skip
any_text = st.text(st.characters(codec="utf-8"), max_size=40)
texts = st.one_of(
    any_text,
    st.lists(st.one_of(st.sampled_from(PIECES), any_text), max_size=12).map("".join),
    st.text(st.characters(max_codepoint=0x2FF), max_size=80),
    st.text(st.sampled_from("abe \u0301\u0308.,!中[]#'\n\u200d\x00"), max_size=300),
)


@pytest.fixture(scope="session")
def tokenizer(minilm: tuple[Path, Path]) -> WordPiece:
    return WordPiece.from_json(minilm[1].read_bytes())


@pytest.fixture(scope="session")
def peer(minilm: tuple[Path, Path]) -> tokenizers.Tokenizer:
    """Hugging Face's tokenizer; like ours it treats "[SEP]" in a text as characters, and reads 256 tokens."""
    out = tokenizers.Tokenizer.from_file(str(minilm[1]))
    out.no_padding()
    out.enable_truncation(MAX_TOKENS)
    out.encode_special_tokens = True
    return out


@examples(1500)
@given(text=texts)
@example(text="")
@example(text="\ud7ff\ue000\U0010ffff")
def test_ids_are_the_peers(tokenizer: WordPiece, peer: tokenizers.Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == peer.encode(text).ids


@pytest.mark.no_cover
@pytest.mark.all
def test_every_character_by_itself_and_between_letters(tokenizer: WordPiece, peer: tokenizers.Tokenizer) -> None:
    """Some at a time: a wrong class of one character shows in the ids around it.

    In planes that are empty, or consist of blocks of one kind, these are the ends of the ranges in our tables and
    some others: test_byte_bpe.py checks the tables for every character.
    """
    ends = {code + by for code in ends_of_ranges() for by in (-1, 0, 1)}
    codes = {*range(0x30000), *range(0xE0000, 0xF0000), *range(0x30000, 0x110000, 61), *ends}
    characters = [chr(code) for code in sorted(codes) if 0 <= code < 0x110000 and not 0xD800 <= code <= 0xDFFF]
    size = 40
    batches = [characters[start : start + size] for start in range(0, len(characters), size)]
    wrong = []
    for pattern in ("a{}b ", "{} "):
        texts = ["".join(pattern.format(c) for c in batch) for batch in batches]
        for text, expected in zip(texts, peer.encode_batch(texts), strict=True):
            if tokenizer.encode(text) != expected.ids:
                wrong.append(text)
    assert wrong == []


def ends_of_ranges() -> list[int]:
    tables = [table for name, table in vars(unicode_ranges).items() if name.isupper()]
    return [int(end, 16) for table in tables for end in re.split(r"[\s-]+", table.strip())]


@given(words=st.lists(st.sampled_from(PIECES), min_size=200, max_size=600))
@examples(50)
def test_long_texts_are_cut_as_the_peer_cuts_them(
    tokenizer: WordPiece, peer: tokenizers.Tokenizer, words: list[str]
) -> None:
    text = " ".join(words)
    ids = tokenizer.encode(text)
    assert ids == peer.encode(text).ids
    assert len(ids) <= MAX_TOKENS


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "word " * 300_000, "\u0301" * 100_000 + " end", " " * 100_000 + "late", "a" * 16_383 + "bc d"],
    ids=["one-word", "many-words", "only-accents", "late", "over-the-border"],
)
@pytest.mark.no_cover
def test_huge_texts(tokenizer: WordPiece, peer: tokenizers.Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == peer.encode(text).ids


def test_a_lone_surrogate_is_what_a_decoder_makes_of_it(tokenizer: WordPiece) -> None:
    assert tokenizer.encode("a\ud83db") == tokenizer.encode("a\ufffdb")


def test_special_tokens_in_a_text_do_not_end_it(tokenizer: WordPiece) -> None:
    ids = tokenizer.encode("[SEP] [CLS]")
    assert ids.count(102) == 1
    assert ids.count(101) == 1


def test_fewer_tokens_can_be_asked_for(minilm: tuple[Path, Path], tokenizer: WordPiece) -> None:
    short = WordPiece.from_json(minilm[1].read_bytes(), max_tokens=5)
    whole = tokenizer.encode("several words of unaffable text")
    assert short.encode("several words of unaffable text") == [*whole[:4], whole[-1]]
    with pytest.raises(WordPieceError, match="no room"):
        WordPiece.from_json(minilm[1].read_bytes(), max_tokens=1)


def small() -> dict[str, Any]:
    """The smallest possible tokenizer.json."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "##bc"]
    normalizer = {"type": "BertNormalizer", "strip_accents": None}
    normalizer |= dict.fromkeys(("clean_text", "handle_chinese_chars", "lowercase"), True)
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    model |= {"max_input_chars_per_word": 5, "vocab": {token: i for i, token in enumerate(tokens)}}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}


def test_the_longest_piece_is_taken_first() -> None:
    tokenizer = WordPiece.from_json(json.dumps(small()))
    assert tokenizer.encode("Abc abb abcd ababab a") == [2, 4, 6, 4, 5, 5, 1, 1, 4, 3]


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("model", "type"), "BPE", "not the tokenizer of an uncased BERT"),
        (("normalizer", "lowercase"), False, "not the tokenizer of an uncased BERT"),
        (("normalizer", "strip_accents"), False, "not the tokenizer of an uncased BERT"),
        (("model", "vocab"), {}, "vocabulary is damaged"),
        (("model", "vocab"), ["a"], "vocabulary is damaged"),
        (("model", "vocab"), {"[UNK]": 0, "[CLS]": 1, "[SEP]": 7}, "vocabulary is damaged"),
        (("model", "vocab"), {"[UNK]": 0, "[CLS]": 1, "[SEP]": True}, "vocabulary is damaged"),
        (("model", "vocab"), {"[UNK]": 0, "[CLS]": 1}, r"no token '\[SEP\]'"),
        (("model", "max_input_chars_per_word"), "5", "vocabulary is damaged"),
        (("model", "max_input_chars_per_word"), 1001, "vocabulary is damaged"),
        (("model",), None, "file is damaged"),
    ],
)
def test_a_file_of_another_kind_is_refused(where: tuple[str, ...], value: Any, said: str) -> None:
    described = small()
    place = described
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(WordPieceError, match=said):
        WordPiece.from_json(json.dumps(described))


@given(st.binary(max_size=60) | st.integers(0, 500).map(lambda n: json.dumps(small()).encode()[:n]))
def test_a_truncated_file_is_refused(content: bytes) -> None:
    if content != json.dumps(small()).encode():
        with pytest.raises(WordPieceError):
            WordPiece.from_json(content)
