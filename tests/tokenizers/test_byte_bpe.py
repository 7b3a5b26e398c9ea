"""Byte-level BPE: the same ids as Hugging Face's `tokenizers` gives from the same vocabulary and merges."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from py_core.formats.gguf import parse_header
from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR, ByteBPE
from py_core.tokenizers.merging import HEAP_FROM, merge_long, merge_short
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.random_examples import examples
from tests.tokenizers.texts import any_text, random_text


@pytest.fixture(scope="session")
def metadata(model_path: Path) -> dict[str, Any]:
    with model_path.open("rb") as file:
        return parse_header(file.read(2 << 20)).metadata


@pytest.fixture(scope="session")
def tokenizer(metadata: dict[str, Any]) -> ByteBPE:
    return ByteBPE.from_gguf(metadata)


@pytest.fixture(scope="session")
def peer(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    """Hugging Face's tokenizer, built from the same file."""
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    out = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    gpt_2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt_2])
    return out


def has_bytes_of(tokenizer: ByteBPE, text: str) -> bool:
    """True if the vocabulary has all bytes of the text. The peer joins the neighbours of a missing byte, llama.cpp
    does not."""
    return all(BYTE_TO_CHAR[byte] in tokenizer.vocabulary.ids for byte in text.encode())


def tiny(**changes: Any) -> dict[str, Any]:
    """Metadata of a small real tokenizer: all bytes, a few merges, three special tokens."""
    tokens = [*BYTE_TO_CHAR.values(), "th", "the", "Ġthe", "Ġt", "<|x|>", "<|x|>y", "<|im_end|>"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the", "Ġ t"],
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 3) + [3, 4, 3],
        "tokenizer.ggml.eos_token_id": 260,
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


@pytest.mark.no_cover
def test_4000_random_texts_of_all_scripts_give_the_peers_ids(tokenizer: ByteBPE, peer: tokenizers.Tokenizer) -> None:
    rng = random.Random(7)
    texts = [text for text in (random_text(rng) for _ in range(4000)) if has_bytes_of(tokenizer, text)]
    assert len(texts) > 3000
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids == peer.encode(text).ids, repr(text)
        assert tokenizer.decode(ids) == text


@given(text=any_text)
@examples(500)
def test_any_text_gives_the_peers_ids(tokenizer: ByteBPE, peer: tokenizers.Tokenizer, text: str) -> None:
    assume(has_bytes_of(tokenizer, text))
    assert tokenizer.encode(text) == peer.encode(text).ids


@given(text=any_text)
@examples(300)
def test_every_text_round_trips(text: str) -> None:
    whole = ByteBPE.from_gguf(tiny())
    assert whole.decode(whole.encode(text)) == text


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined(tokenizer: ByteBPE) -> None:
    assert tokenizer.encode("a\ud83dz") == tokenizer.encode("a\ufffdz")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("😀")


def test_bytes_that_the_vocabulary_lacks_are_dropped_and_join_nothing(tokenizer: ByteBPE) -> None:
    the, t, h = (tokenizer.encode(text) for text in ("th", "t", "h"))
    assert len(the) == 1
    assert tokenizer.encode("\x04t\x04\x04h\x1d") == [*t, *h]
    assert tokenizer.decode(tokenizer.encode("a\x04b")) == "ab"


# --- merging --------------------------------------------------------------------------------------------------------


@given(
    word=st.text("abc", max_size=120),
    merges=st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", "ab", "bc", "aa", "abc", "aaa"])] * 2), max_size=12),
)
@examples(500)
def test_the_heap_merges_as_the_short_loop_in_any_order_of_ranks(word: str, merges: list[tuple[str, str]]) -> None:
    ranks = {f"{left} {right}": rank for rank, (left, right) in enumerate(dict.fromkeys(merges))}
    assert merge_long(word, ranks, " ") == merge_short(word, ranks, " ")


def test_long_words_give_the_peers_ids(tokenizer: ByteBPE, peer: tokenizers.Tokenizer) -> None:
    rng = random.Random(3)
    for length in (HEAP_FROM - 1, HEAP_FROM, HEAP_FROM + 1, 1000, 5000):
        word = "".join(rng.choices("etaoinshrdlu", k=length))
        assert tokenizer.encode(word) == peer.encode(word).ids


@pytest.mark.timeout(60)  # measured 0.01-0.25 s; quadratic time would be minutes
@pytest.mark.parametrize("unit", ["a", "etaoin", " ", "\n", "漢", "-", "'", "9", "😀", "\u0301"])
def test_100_kb_without_a_break_takes_no_quadratic_time(tokenizer: ByteBPE, unit: str) -> None:
    text = unit * (100_000 // len(unit.encode()))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_cache_does_not_grow_for_ever(tokenizer: ByteBPE) -> None:
    fresh = ByteBPE.from_gguf(tiny())
    fresh.encode(" ".join(f"w{chr(0x4E00 + i % 9000)}{chr(0xAC00 + i // 9000)}" for i in range(40_000)))
    assert 0 < len(fresh._cache) <= 1 << 15


# --- special tokens -------------------------------------------------------------------------------------------------


@given(text=any_text, name=st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>"]))
def test_text_that_looks_special_is_plain_text(tokenizer: ByteBPE, text: str, name: str) -> None:
    ids = tokenizer.encode(text + name + text)
    assert not set(ids) & set(tokenizer.control_tokens.values())
    assert name in tokenizer.decode(ids)


def test_special_tokens_are_parsed_where_they_may_be(tokenizer: ByteBPE) -> None:
    text = "<|im_start|>user\nhi<|im_end|>\n"
    expected = [1, *tokenizer.encode("user\nhi"), 2, *tokenizer.encode("\n")]
    assert tokenizer.encode(text, special=True) == expected
    assert tokenizer.decode(expected) == text
    assert tokenizer.decode(expected, skip_special=True) == "user\nhi\n"


def test_the_longest_special_token_wins() -> None:
    small = ByteBPE.from_gguf(tiny())
    assert small.encode("<|x|>y<|x|>", special=True) == [small.special_tokens["<|x|>y"], small.special_tokens["<|x|>"]]


def test_user_defined_tokens_are_special_too_and_ends_are_known_by_name() -> None:
    small = ByteBPE.from_gguf(tiny())
    assert set(small.special_tokens) == {"<|x|>", "<|x|>y", "<|im_end|>"}
    assert small.eos_ids == {260, small.special_tokens["<|im_end|>"]}


def test_the_real_file_names_its_special_tokens(tokenizer: ByteBPE) -> None:
    assert tokenizer.vocab_size == 49152
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, False)
    assert {tokenizer.tokens[index] for index in tokenizer.eos_ids} == {"<|endoftext|>", "<|im_end|>", "<reponame>"}
    assert len(tokenizer.special_tokens) == 17


def test_no_special_tokens_at_all_is_fine() -> None:
    plain = ByteBPE.from_gguf(tiny(**{"tokenizer.ggml.token_type": None}))
    assert plain.encode("the<|x|>", special=True) == plain.encode("the<|x|>")


def test_whole_words_of_the_vocabulary_are_kept_where_the_model_says_so() -> None:
    # "the" is in the vocabulary, but without its merge it is reached only as a whole word.
    merges = {"tokenizer.ggml.merges": ["t h"]}
    assert len(ByteBPE.from_gguf(tiny(**merges)).encode("the")) == 2
    assert len(ByteBPE.from_gguf(tiny(**merges, **{"tokenizer.ggml.pre": "llama-bpe"})).encode("the")) == 1


# --- decoding -------------------------------------------------------------------------------------------------------


@given(text=any_text.filter(lambda text: "\ufffd" not in text))
@examples(300)
def test_streaming_never_emits_half_a_character(text: str) -> None:
    bytewise = ByteBPE.from_gguf(tiny())
    stream = bytewise.stream()
    pieces = [stream.push(index) for index in bytewise.encode(text)]
    assert "".join(pieces) == text


@given(ids=st.lists(st.integers(0, 49151), max_size=30))
@examples(300)
def test_streaming_any_ids_gives_what_decoding_them_at_once_gives(tokenizer: ByteBPE, ids: list[int]) -> None:
    stream = tokenizer.stream()
    ids += tokenizer.encode("\n")  # ends in the middle of a character
    assert "".join([stream.push(index) for index in ids]) == tokenizer.decode(ids)


def test_an_emoji_comes_with_its_last_byte() -> None:
    small = ByteBPE.from_gguf(tiny())
    stream = small.stream()
    assert [stream.push(index) for index in small.encode("a😀é")] == ["a", "", "", "", "😀", "", "é"]


def test_half_a_character_is_not_shown() -> None:
    small = ByteBPE.from_gguf(tiny())
    stream = small.stream()
    assert [stream.push(index) for index in small.encode("a😀")[:-1]] == ["a", "", "", ""]


def test_streams_can_leave_special_tokens_out(tokenizer: ByteBPE) -> None:
    assert (tokenizer.stream(skip_special=True).push(2), tokenizer.stream().push(2)) == ("", "<|im_end|>")


@pytest.mark.parametrize("bad", [-1, 49152, 1 << 40])
def test_ids_outside_of_the_vocabulary_are_refused(tokenizer: ByteBPE, bad: int) -> None:
    with pytest.raises(ValueError, match=f"token id {bad} is outside of the vocabulary of 49152 tokens"):
        tokenizer.decode([bad])


# --- malformed vocabularies -----------------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"tokenizer.ggml.model": "t5"}, "of kind 't5', which Sonata cannot read. Choose"),
    "no kind": ({"tokenizer.ggml.model": None}, "of kind None"),
    "types of text": ({"tokenizer.ggml.token_type": ["x"]}, "no usable list tokenizer.ggml.token_type"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "no usable list tokenizer.ggml.tokens"),
    "tokens of numbers": ({"tokenizer.ggml.tokens": [1, 2]}, "no usable list tokenizer.ggml.tokens"),
    "no merges": ({"tokenizer.ggml.merges": None}, "no usable list tokenizer.ggml.merges"),
    "unknown rules": ({"tokenizer.ggml.pre": "klingon"}, "by the rules 'klingon', which Sonata does not know"),
    "types of another length": (
        {"tokenizer.ggml.token_type": [1]},
        "263 tokens, but 1 entries in tokenizer.ggml",
    ),
    "a token twice": ({"tokenizer.ggml.tokens": ["a"] * 263}, "a token appears twice"),
    "a merge of one part": ({"tokenizer.ggml.merges": ["th"]}, "the merge 'th' does not give a token"),
    "a merge of three parts": ({"tokenizer.ggml.merges": ["t h e"]}, "the merge 't h e' does not give a token"),
    "a merge into nothing": ({"tokenizer.ggml.merges": ["q q"]}, "the merge 'q q' does not give a token"),
    "an id of text": ({"tokenizer.ggml.bos_token_id": "<s>"}, "bos_token_id is '<s>'"),
}


@pytest.mark.parametrize("index", [263, -1, 2**32 - 1])
def test_an_id_that_no_token_has_is_not_given(index: int) -> None:
    ids = {f"tokenizer.ggml.{name}_token_id": index for name in ("bos", "eos", "unknown", "eot")}
    tokenizer, without = tokenizer_from_gguf(tiny(**ids)), tokenizer_from_gguf(tiny(**dict.fromkeys(ids)))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.eos_ids) == (without.bos_id, without.eos_id, without.eos_ids)


@pytest.mark.parametrize("case", list(MALFORMED))
def test_malformed_vocabulary_gives_a_sentence(case: str) -> None:
    changes, message = MALFORMED[case]
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_gguf(tiny(**changes))
