"""Free text in which tags begin texts of a shape: what calls of tools need."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.generation.grammars import shape_of, tag_bytes, token_bytes
from py_core.grammar.constraint import Constraint, TokenGrammar
from py_core.grammar.expressions import SPECIAL, Choice, Expression, Grammar, GrammarError, Joined, Literal, Reference
from py_core.grammar.kernel import GrammarKernel, OpenGrammar
from py_core.grammar.regex import regex_expression
from py_core.grammar.triggers import Trigger, triggered
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.vocabulary import CONTROL, UNUSED, USER_DEFINED
from tests.grammar.test_kernel import open_kernel
from tests.tiny.tokenizers import bpe

TAGS = ["<a>", "<<ä", "aab", SPECIAL.decode("latin-1") + "<a>"]
PIECES = ["<", "a", ">", "b", "ä", "1", ";", *TAGS]
CALL = re.compile("1*;")
TOKENS = [one.encode("latin-1") if one.startswith("\xff") else one.encode() for one in PIECES]
TOKENS += [b"b<", b"aa", b">1;", b"<a>1", b";<", bytes([0xC3]), bytes([0xA4])]


def shaped(expression: Expression) -> Grammar:
    return Grammar({"root": Joined((Reference("more"), Literal(b";"))), "more": expression})


def is_right(text: str, tags: Sequence[str], least: int, most: int | None, goes_on: bool, calls: int = 0) -> bool:
    """As triggers say: the first tag to end begins a call, and so on."""
    ends = [(text.index(tag) + len(tag), tag) for tag in tags if tag in text]
    if not ends:
        return (calls >= least and "\xff" not in text) and (goes_on or not calls or not text)
    end, tag = min(ends, key=lambda one: (one[0], -len(one[1])))
    if calls == most or "\xff" in text[: end - len(tag)] or not (call := CALL.match(text, end)):
        return False
    return is_right(text[call.end() :], tags, least, most, goes_on, calls + 1)


@pytest.fixture(scope="module")
def kernel() -> GrammarKernel:
    return open_kernel(TOKENS)


def allowed(opened: OpenGrammar, state: int) -> set[int]:
    bits = np.unpackbits(opened.mask(state).view(np.uint8), count=len(TOKENS), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


ONE, END = PIECES.index("1"), PIECES.index(";")
BEFORE = st.lists(st.sampled_from([PIECES.index("<"), PIECES.index("a")]), max_size=2)
CALLS = st.tuples(BEFORE, st.sampled_from([PIECES.index(tag) for tag in TAGS]), st.integers(0, 2)).map(
    lambda one: [*one[0], one[1], *[ONE] * one[2], END]
)
TEXTS = st.lists(CALLS | st.sampled_from(range(len(TOKENS))).map(lambda token: [token]), max_size=9)
OPENED: dict[object, OpenGrammar] = {}


@given(
    TEXTS.map(lambda parts: [token for part in parts for token in part]),
    st.sampled_from([TAGS, TAGS[:1], TAGS[2:], TAGS[3:]]),
    st.sampled_from([(0, None), (1, 1), (0, 2), (2, None)]),
    st.booleans(),
)
def test_a_tag_begins_its_shape_wherever_it_stands(
    kernel: GrammarKernel, tokens: list[int], tags: list[str], bounds: tuple[int, int | None], goes_on: bool
) -> None:
    least, most = bounds
    key = (tuple(tags), bounds, goes_on)
    if key not in OPENED:
        triggers = [Trigger(TOKENS[PIECES.index(tag)], shaped(regex_expression("1*"))) for tag in tags]
        OPENED[key] = kernel.open(triggered(triggers, least=least, most=most, goes_on=goes_on))
    opened = OPENED[key]
    state: int | None = opened.begins
    for token in tokens:
        assert state is not None
        is_allowed = token in allowed(opened, state)
        state = opened.after_token(state, token)
        assert is_allowed == (state is not None)
        if state is None:
            break
    data = b"".join(TOKENS[token] for token in tokens)
    try:
        text = "".join("\xff" + part for part in map(bytes.decode, data.split(SPECIAL)))[1:]
    except UnicodeDecodeError:
        assert state is None or not opened.may_end(state), "the text is no UTF-8"
        return
    assert (state is not None and opened.may_end(state)) == is_right(text, tags, least, most, goes_on), data


def test_each_tag_has_its_own_shape_of_the_same_names_of_rules(kernel: GrammarKernel) -> None:
    ones, letters = shaped(regex_expression("1")), shaped(Choice((Literal(b"a"), Reference("other"))))
    letters = Grammar({**letters.rules, "other": Literal(b"b")})
    opened = kernel.open(triggered([Trigger(b"<a>", ones), Trigger(b"aab", letters)], least=1, goes_on=False))
    for text, is_one in ((b"<<a>1;", True), (b"aaab;<a>1;", False), (b"aaaba;b<a>1;", True), (b"<a>a;", False)):
        state, _ = opened.after_bytes(opened.begins, text)
        assert (state is not None and opened.may_end(state)) == is_one, text
    for tags in ([b""], [b"<a>", b"a"]):
        with pytest.raises(GrammarError, match="empty, or contains another"):
            triggered([Trigger(tag, ones) for tag in tags])


def test_special_tokens_are_tags_and_user_defined_ones_are_text() -> None:
    special = {"<call>": USER_DEFINED, "[CALL]": CONTROL, "<|im_end|>": CONTROL, "[PAD1]": UNUSED}
    tokenizer = tokenizer_from_gguf(bpe(special))
    call, control, end, pad = range(256, 260)
    tokens = token_bytes(tokenizer, 262)
    assert tokens[call:] == [b"<call>", SPECIAL + b"[CALL]", b"", b"", b"", b""]
    assert sorted(tokens[:256]) == [b"", *(bytes([byte]) for byte in range(255))]
    assert [tag_bytes(tokenizer, tag) for tag in ("<call>", "[CALL]")] == [b"<call>", SPECIAL + b"[CALL]"]
    kernel = open_kernel(tokens)
    yes = Grammar({"root": Literal(b"yes")})
    for tag, token in (("<call>", call), ("[CALL]", control)):
        grammar = triggered([Trigger(tag_bytes(tokenizer, tag), yes)], most=1, goes_on=False)
        constraint = Constraint(TokenGrammar(kernel.open(grammar), tokenizer.encode, tokenizer.eos_ids), lambda _: None)
        assert not constraint.forced()
        assert {call, control, end, pad} & ids_of(constraint) == {call, token, end}
        constraint.extend([*tokenizer.encode("Well, "), token])
        assert constraint.forced() == tokenizer.encode("yes")
        constraint.extend(tokenizer.encode("yes"))
        assert ids_of(constraint) == {end}
        constraint.close()
    either = shape_of(None, None, None, ["yes"], after="[CALL]")
    assert either is not None
    for tag in (tokenizer.encode("[CALL]"), [control]):
        constraint = Constraint(TokenGrammar(kernel.open(either), tokenizer.encode, tokenizer.eos_ids), lambda _: None)
        constraint.extend([*tokenizer.encode("Well, "), *tag])
        assert constraint.forced() == tokenizer.encode("yes")


def test_what_is_forced_are_tokens_that_the_grammar_allows() -> None:
    """Not the text of a special token, nor what follows the rest of a character."""
    tokenizer = tokenizer_from_gguf(bpe({"[CALL]": CONTROL}))
    kernel = open_kernel(token_bytes(tokenizer))
    grammar = Grammar({"root": Joined((Literal(b"call:" + SPECIAL + b"[CALL]"), Literal("äöü".encode())))})
    constraint = Constraint(TokenGrammar(kernel.open(grammar), tokenizer.encode, tokenizer.eos_ids), lambda _: None)
    assert constraint.forced() == tokenizer.encode("call:")
    constraint.extend(tokenizer.encode("call:"))
    assert constraint.forced() == []
    constraint.extend([256])
    assert len(constraint.forced()) == 6
    constraint.extend(tokenizer.encode("ä")[:1])
    assert constraint.forced() == []


def ids_of(constraint: Constraint) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")).tolist())
