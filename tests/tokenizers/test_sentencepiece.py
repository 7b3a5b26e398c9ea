"""SentencePiece: the ids of the library of this name and of a plain slow reference, and what llama.cpp adds to them."""

from __future__ import annotations

import io
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.merging import merge_long, merge_short
from py_core.tokenizers.prompts import encode_text
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.sentencepiece import SPACE, SentencePiece
from py_core.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tests.random_examples import examples
from tests.tokenizers.texts import any_text, random_text

REPOSITORY = Path(__file__).parents[2]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@pytest.fixture(scope="module")
def peer() -> sentencepiece.SentencePieceProcessor:
    """A model trained on the README in a few hundredths of a second."""
    model = io.BytesIO()
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=700, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        minloglevel=2, num_threads=1,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture(scope="module")
def tokenizer(peer: sentencepiece.SentencePieceProcessor) -> SentencePiece:
    """The same model in GGUF's form."""
    ids = range(peer.get_piece_size())
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [peer.id_to_piece(index) for index in ids],
        "tokenizer.ggml.scores": [peer.get_score(index) for index in ids],
        "tokenizer.ggml.token_type": [
            UNKNOWN if peer.is_unknown(i) else CONTROL if peer.is_control(i) else BYTE if peer.is_byte(i) else NORMAL
            for i in ids
        ],
    }
    made = tokenizer_from_gguf(metadata)
    assert isinstance(made, SentencePiece)
    return made


def tiny(
    *pieces: str, special: dict[str, int] | None = None, scores: list[float] | None = None, **changes: Any
) -> dict:
    """Metadata: three control tokens, the bytes, `special` (text -> type), and pieces, the best first."""
    types = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL} | dict.fromkeys(BYTES, BYTE) | (special or {})
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*types, *pieces],
        "tokenizer.ggml.token_type": [*types.values(), *[NORMAL] * len(pieces)],
        "tokenizer.ggml.scores": [0.0] * len(types) + (scores or [-float(rank) for rank in range(len(pieces))]),
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


def pieces_of(metadata: dict[str, Any], text: str, special: bool = False) -> list[str]:
    tokenizer = tokenizer_from_gguf(metadata)
    return [tokenizer.tokens[index] for index in tokenizer.encode(text, special=special)]


# --- the same ids ---------------------------------------------------------------------------------------------------


@given(text=any_text)
@examples(300)
def test_any_text_gives_the_librarys_ids(
    tokenizer: SentencePiece, peer: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    # The library puts no space before an empty text.
    assert tokenizer.encode(text) == (peer.encode(text) if text else [])


def test_1000_random_texts_of_all_scripts_give_the_librarys_ids_and_round_trip(
    tokenizer: SentencePiece, peer: sentencepiece.SentencePieceProcessor
) -> None:
    rng = random.Random(5)
    for text in [random_text(rng) for _ in range(1000)]:
        ids = tokenizer.encode(text)
        assert ids == peer.encode(text), repr(text)
        assert tokenizer.decode(ids) == text


@given(text=any_text.filter(lambda text: SPACE not in text))
@examples(300)
def test_every_text_round_trips(tokenizer: SentencePiece, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def slowly(text: str, costs: dict[str, float]) -> list[str]:
    """The tokenizer's specification, without optimization."""
    parts = list(text)
    while True:
        joined = [left + right for left, right in pairwise(parts)]
        known = [(costs[pair], at) for at, pair in enumerate(joined) if pair in costs]
        if not known:
            return parts
        _, at = min(known)
        parts[at : at + 2] = [joined[at]]


@given(
    word=st.text("ab" + SPACE, max_size=140),
    costs=st.dictionaries(st.text("ab" + SPACE, min_size=2, max_size=5), st.sampled_from([1.0, 2.0, 2.5, 0.0])),
)
@examples(300)
def test_pieces_are_joined_by_cost_and_equal_ones_from_the_left(word: str, costs: dict[str, float]) -> None:
    assert merge_short(word, costs, "") == merge_long(word, costs, "") == slowly(word, costs)


@given(
    words=st.lists(st.text("ab ", max_size=9), max_size=6),
    pieces=st.lists(st.text("ab" + SPACE, min_size=2, max_size=4), unique=True, max_size=14),
)
@examples(300)
def test_words_are_encoded_one_by_one_only_where_no_piece_goes_over_their_end(
    words: list[str], pieces: list[str]
) -> None:
    text = " ".join(words)
    metadata = tiny("a", "b", SPACE, *pieces)
    costs = {piece: float(rank) for rank, piece in enumerate(pieces)}
    expected = slowly((SPACE + text.replace(" ", SPACE)) if text else "", costs)
    assert pieces_of(metadata, text) == expected


def test_the_score_counts_not_the_place_in_the_vocabulary() -> None:
    metadata = tiny("a", "b", "c", "ab", "bc", SPACE, scores=[0, 0, 0, -9.0, -1.0, 0])
    assert pieces_of(metadata, "abc") == [SPACE, "a", "bc"]


# --- Gemma 4's merges -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranked() -> tuple[Tokenizer, SentencePiece]:
    """A vocabulary of merges, in `tokenizers` and in GGUF's form."""
    peer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    peer.normalizer = normalizers.Replace(" ", SPACE)
    peer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", *BYTES], show_progress=False)
    peer.train_from_iterator([(REPOSITORY / "README.md").read_text(encoding="utf-8")], trainer)
    model = json.loads(peer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    types = [UNKNOWN if token == "<unk>" else BYTE if token in BYTES else NORMAL for token in tokens]
    made = tokenizer_from_gguf({
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.add_space_prefix": False,
    })  # fmt: skip
    assert isinstance(made, SentencePiece)
    return peer, made


def test_gemma_4_joins_by_a_list_of_merges_within_lines(ranked: tuple[Tokenizer, SentencePiece]) -> None:
    peer, made = ranked
    rng = random.Random(5)
    texts = [random_text(rng) for _ in range(300)] + ["a\n\n\nb \n c", "\n\n\n\n\n", "The page  reads\nand writes"]
    for text in texts:
        ids = made.encode(text)
        assert ids == peer.encode(text, add_special_tokens=False).ids, repr(text)
        assert made.decode(ids) == text


def test_gemma_4_takes_a_token_of_lines_whole_and_merges_only_what_is_listed() -> None:
    merges = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": ["b c", "a b"]}
    changes = {**merges, "tokenizer.ggml.add_space_prefix": False}
    metadata = tiny("a", "b", "c", "ab", "bc", "\n", "\n\n", SPACE, **changes)
    assert pieces_of(metadata, "abc ab\n\na") == ["a", "bc", SPACE, "ab", "\n\n", "a"]
    assert pieces_of(metadata, "\n\n\n") == ["\n"] * 3
    with pytest.raises(TokenizerError, match="does not give a token"):
        tokenizer_from_gguf({**metadata, "tokenizer.ggml.merges": ["c c"]})


# --- spaces and bytes -----------------------------------------------------------------------------------------------


def test_a_space_stands_before_a_text_and_after_each_special_token_and_decoding_takes_the_first_away() -> None:
    metadata = tiny("a", SPACE, special={"<tool>": USER_DEFINED})
    assert pieces_of(metadata, "a<tool>a") == [SPACE, "a", "<tool>", SPACE, "a"]
    assert pieces_of(metadata, "<s>a</s>", special=True) == ["<s>", SPACE, "a", "</s>"]
    tokenizer = tokenizer_from_gguf(metadata)
    ids = tokenizer.encode("a a")
    assert tokenizer.decode(ids) == "a a"
    assert tokenizer.decode(ids, continues=True) == " a a"
    assert tokenizer.decode([1, *ids]) == "<s> a a"


def test_gemmas_files_put_no_space_before_a_text() -> None:
    metadata = tiny("a", SPACE, **{"tokenizer.ggml.add_space_prefix": False})
    assert pieces_of(metadata, "a a") == ["a", SPACE, "a"]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"


def test_gemmas_runs_of_spaces_and_newlines_are_tokens_and_the_longest_is_taken() -> None:
    special = dict.fromkeys(["  ", "   ", "\n\n", "\n\n\n"], USER_DEFINED)
    metadata = tiny("a", SPACE, "\n", special=special, **{"tokenizer.ggml.add_space_prefix": False})
    assert pieces_of(metadata, "a    a\n\n\n\n\na a") == ["a", "   ", SPACE, "a", "\n\n\n", "\n\n", "a", SPACE, "a"]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("a  a\n\n"), skip_special=True) == "a  a\n\n"


def test_a_character_without_a_token_becomes_its_bytes_and_without_those_the_unknown_token() -> None:
    assert pieces_of(tiny(SPACE), "é") == [SPACE, "<0xC3>", "<0xA9>"]
    lacking = tiny(SPACE)
    lacking["tokenizer.ggml.tokens"][3 + 0xA9] = "other"
    lacking["tokenizer.ggml.token_type"][3 + 0xA9] = NORMAL
    assert pieces_of(lacking, "éx") == [SPACE, "<unk>", "<0x78>"]


def test_an_emoji_streams_with_its_last_byte(tokenizer: SentencePiece) -> None:
    stream = tokenizer.stream()
    pieces = [stream.push(index) for index in tokenizer.encode("a 😀!")]
    assert "".join(pieces) == "a 😀!"
    assert "\ufffd" not in "".join(pieces)


@given(ids=st.lists(st.integers(0, 699), max_size=30))
@examples(200)
def test_streaming_any_ids_gives_what_decoding_them_at_once_gives(tokenizer: SentencePiece, ids: list[int]) -> None:
    stream = tokenizer.stream()
    ids += tokenizer.encode("\n")  # ends in the middle of a character
    assert "".join([stream.push(index) for index in ids]) == tokenizer.decode(ids)


# --- special tokens, hostile texts, damaged files --------------------------------------------------------------------


def test_no_text_can_be_joined_to_a_control_token_or_a_byte() -> None:
    steps = ["<", "s", ">", "/", "</", "<s", "s>", "</s", "0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"]
    metadata = tiny(*steps, SPACE)
    for text in ("<s>", "</s>", "<0x41>", "<unk>"):
        made = pieces_of(metadata, text)
        assert text not in made
        assert "".join(made).replace(SPACE, "").startswith(text[0])
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


def test_half_a_surrogate_pair_becomes_the_replacement_character(tokenizer: SentencePiece) -> None:
    assert tokenizer.encode("a\ud83dz") == tokenizer.encode("a\ufffdz")


@pytest.mark.parametrize("unit", ["a", " ", "\n", "漢", "ab ", "<"])
def test_100000_characters_without_a_break_come_back(tokenizer: SentencePiece, unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text


def test_bos_eos_and_unknown_are_the_first_three_where_the_file_does_not_say() -> None:
    tokenizer = tokenizer_from_gguf(tiny("a", SPACE))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, tokenizer.add_eos) == (1, 2, True, False)
    assert tokenizer.eos_ids == {2}
    assert encode_text(tokenizer, "") == [1]


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "too few scores": ({"tokenizer.ggml.scores": [1.0]}, "but 1 entries in tokenizer.ggml.scores"),
    "scores of text": ({"tokenizer.ggml.scores": ["x"]}, "no usable list tokenizer.ggml.scores"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "no usable list tokenizer.ggml.tokens"),
    "types of another length": (
        {"tokenizer.ggml.token_type": [1]},
        "but 1 entries in tokenizer.ggml.token_type",
    ),
}


@pytest.mark.parametrize("case", list(MALFORMED))
def test_malformed_vocabulary_gives_a_sentence(case: str) -> None:
    changes, message = MALFORMED[case]
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_gguf(tiny("a", **changes))
