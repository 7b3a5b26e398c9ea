"""Special tokens: where they are found, for any tokenizer, and the facts that llama.cpp derives from their names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.special_tokens import SpecialTokens
from py_core.tokenizers.vocabulary import CONTROL, END_NAMES, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary
from tests.random_examples import examples
from tests.tiny.tokenizers import bpe


def found(special: dict[str, int], text: str, *, parse: bool, **changes: Any) -> list[str]:
    """Text and special tokens that `text` is split into."""
    tokenizer = tokenizer_from_gguf(bpe(special, **changes))
    out: list[str] = []
    is_text = False
    for index in tokenizer.encode(text, special=parse):
        piece = tokenizer.decode([index])
        if index < 256 and is_text:
            out[-1] += piece
        else:
            out.append(piece)
        is_text = index < 256
    return out


KINDS = {"<c>": CONTROL, "<u>": USER_DEFINED, "<?>": UNKNOWN}


def test_user_defined_tokens_are_found_in_plain_text_the_others_only_where_special_tokens_are_parsed() -> None:
    assert found(KINDS, "a<c>b<u>c<?>d", parse=False) == ["a<c>b", "<u>", "c<?>d"]
    assert found(KINDS, "a<c>b<u>c<?>d", parse=True) == ["a", "<c>", "b", "<u>", "c", "<?>", "d"]


def test_the_longest_is_searched_first_also_where_a_shorter_one_begins_before_it() -> None:
    special = {"ab": USER_DEFINED, "bcd": USER_DEFINED, "abc": CONTROL}
    assert found(special, "abcd", parse=False) == ["a", "bcd"]
    assert found({"<x>": CONTROL, "<x>y": CONTROL}, "<x>y<x>", parse=True) == ["<x>y", "<x>"]


def test_length_is_counted_in_bytes() -> None:
    assert found({"xé漢": USER_DEFINED, "abcx": USER_DEFINED}, "abcxé漢", parse=False) == ["abc", "xé漢"]


def test_what_is_between_two_parts_is_one_text_and_no_control_token() -> None:
    tokenizer = tokenizer_from_gguf(bpe(KINDS))
    parts = [("<c", True), (">", False), ("<c>", True), ("<c>", False), ("<u", True), (">", False)]
    ids = tokenizer.encode_parts(parts)
    assert tokenizer.decode(ids) == "<c><c><c><u>"
    assert [index for index in ids if index > 255] == [256, 257]


@pytest.mark.parametrize("name", sorted(END_NAMES))
def test_a_token_of_an_ends_name_ends_an_answer_and_is_a_control_token_whatever_the_file_says(name: str) -> None:
    for kind in (NORMAL, USER_DEFINED, CONTROL):
        tokenizer = tokenizer_from_gguf(bpe({name: kind}))
        assert tokenizer.eos_ids == {256}
        assert tokenizer.control_tokens == {name: 256}
        assert 256 not in tokenizer.encode(name)
        assert tokenizer.decode([256], skip_special=True) == ""


def test_every_end_that_the_file_declares_is_one() -> None:
    keys = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"]
    declared = {f"tokenizer.ggml.{key}_token_id": number for number, key in enumerate(keys)}
    assert tokenizer_from_gguf(bpe({}, **declared)).eos_ids == set(range(6))


def test_an_end_outside_of_the_vocabulary_is_none() -> None:
    unset = {f"tokenizer.ggml.{key}_token_id": 0xFFFFFFFF for key in ("eot", "eom", "fim_pad", "unknown")}
    assert tokenizer_from_gguf(bpe({}, **unset)).eos_ids == set()


def test_in_the_families_with_return_and_call_the_end_of_a_part_is_no_end() -> None:
    names = ["<|end|>", "<|return|>", "<|call|>"]
    assert tokenizer_from_gguf(bpe(dict.fromkeys(names, CONTROL))).eos_ids == {257, 258}
    assert tokenizer_from_gguf(bpe(dict.fromkeys(names[:2], CONTROL))).eos_ids == {256, 257}


PHI_3 = {"<|user|>": CONTROL, "<|endoftext|>": CONTROL, "<tool>": USER_DEFINED, "<unk>": UNKNOWN, "</s>": CONTROL}


@pytest.mark.parametrize("name", ["Phi-3 mini", "microsoft_phi3", "PHI-3.5"])
def test_phi_3s_special_tokens_take_the_white_space_after_them_but_for_three(name: str) -> None:
    text = "<|user|> \n\t hi <tool>  a<unk> b<|endoftext|>\nc</s> d"
    taken = ["<|user|>", "hi ", "<tool>", "a", "<unk>", " b", "<|endoftext|>", "\nc", "</s>", "d"]
    assert found(PHI_3, text, parse=True, **{"general.name": name}) == taken


def test_other_models_special_tokens_take_none() -> None:
    assert found(PHI_3, "<|user|> hi", parse=True, **{"general.name": "Llama"}) == ["<|user|>", " hi"]


def test_user_defined_tokens_are_shown_and_control_tokens_are_not_but_for_the_tags_of_a_thought() -> None:
    tokenizer = tokenizer_from_gguf(bpe(KINDS | {"<think>": CONTROL, "</think>": CONTROL}))
    assert tokenizer.decode([256, 257, 258, 259, 260], skip_special=True) == "<u><think></think>"
    assert 259 not in tokenizer.encode("<think>")


def test_empty_tokens_stand_for_nothing_and_may_be_many() -> None:
    metadata = bpe({})
    metadata["tokenizer.ggml.tokens"] += ["", ""]
    metadata["tokenizer.ggml.token_type"] += [CONTROL, USER_DEFINED]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("a", special=True) == [ord("a") - 33]
    assert tokenizer.decode([256, 257]) == ""


@given(
    text=st.text("<>|ab ", max_size=40),
    tokens=st.dictionaries(
        st.text("<>|ab", min_size=1, max_size=4), st.sampled_from([CONTROL, USER_DEFINED]), max_size=6
    ),
    cut=st.integers(0, 40),
)
@examples(300)
def test_the_pieces_are_the_text_and_found_one_token_after_the_other(
    text: str, tokens: dict[str, int], cut: int
) -> None:
    """Against a plain specification: replace each token in turn, longest first, in the remaining text."""
    special = SpecialTokens(Vocabulary(list(tokens), list(tokens.values())))
    spans = [span for span in ((0, min(cut, len(text))),) if span[1]]
    pieces: list[tuple[int, str] | int] = [(0, text)] if text else []
    ids = {token: index for index, token in enumerate(tokens)}
    for token in sorted(tokens, key=lambda token: (-len(token), ids[token])):
        out: list[tuple[int, str] | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                out.append(piece)
                continue
            start, rest = piece
            at = 0
            while at <= len(rest):
                here = rest.find(token, at)
                if here < 0:
                    break
                if tokens[token] == CONTROL and start + here + len(token) > min(cut, len(text)):
                    break
                out += [(start, rest[:here])] if here else []
                out.append(ids[token])
                start, rest, at = start + here + len(token), rest[here + len(token) :], 0
            out += [(start, rest)] if rest else []
        pieces = out
    expected = [piece if isinstance(piece, int) else piece[1] for piece in pieces]
    assert special.split(text, spans) == expected


def test_a_long_text_is_split_at_thousands_of_special_tokens() -> None:
    special = {f"<unused{number}>": CONTROL for number in range(6000)} | {"\n" * n: USER_DEFINED for n in range(2, 32)}
    tokens = SpecialTokens(Vocabulary(list(special), list(special.values())))
    text = ("word " * 20 + "\n\n\n<b>") * 900
    pieces = tokens.split(text, [(0, len(text))])
    assert len(pieces) == 1801
