"""A text that has no more room is ended in the shortest way that its grammar has."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.generation.grammars import shape_of
from py_core.grammar.constraint import Constraint, TokenGrammar
from py_core.grammar.expressions import SPECIAL, Chars, Choice, Expression, Grammar, Joined, Literal, Reference, Repeat
from py_core.grammar.kernel import GrammarKernel, OpenGrammar
from tests.grammar.reference import can_begin, matches
from tests.grammar.test_kernel import EXPRESSIONS, LETTERS, OTHERS, open_kernel

BYTES = [bytes([byte]) for byte in range(256)]
USED = bytes({*LETTERS, *b'"ue4/', ord("\\")})
"""The bytes of some shortest rest, whatever the expression of the random ones."""


@pytest.fixture(scope="module")
def kernel() -> GrammarKernel:
    return open_kernel([*BYTES[:255], b'"}', b"aaaa", SPECIAL + b"<b>"])


def closed(kernel: GrammarKernel, opened: OpenGrammar, text: bytes) -> bytes | None:
    state, _ = opened.after_bytes(opened.begins, text)
    assert state is not None, text
    tokens = opened.closing(state)
    return None if tokens is None else b"".join(kernel.tokens[token] for token in tokens)


def least(opened: OpenGrammar, text: bytes, most: int) -> int:
    """The bytes of a shortest rest, by trying all."""
    states, seen = {opened.after_bytes(opened.begins, text)[0]}, set[int]()
    for length in range(most):
        if any(opened.may_end(state) for state in states if state is not None):
            return length
        seen |= {state for state in states if state is not None}
        after = {opened.after_bytes(state, bytes([byte]))[0] for state in states if state is not None for byte in USED}
        states = after - seen
    return most


@settings(max_examples=30, deadline=None)
@given(EXPRESSIONS, OTHERS, st.lists(st.sampled_from(USED), max_size=4).map(bytes))
def test_no_rest_is_shorter(kernel: GrammarKernel, root: Expression, other: Expression, tried: bytes) -> None:
    grammar = Grammar({"root": root, "other": other})
    if not can_begin(grammar, b""):
        return
    opened = kernel.open(grammar)
    text = next(tried[:end] for end in range(len(tried), -1, -1) if can_begin(grammar, tried[:end]))
    rest = closed(kernel, opened, text)
    assert rest is not None
    assert matches(grammar, text + rest)
    assert len(rest) == least(opened, text, len(rest))
    opened.close()


def test_loops_and_calls_count_what_is_over(kernel: GrammarKernel) -> None:
    pair = Joined((Literal(b"("), Chars(((97, 98),), 2, 3), Literal(b")")))
    nested = Choice((Literal(b"ab"), Joined((Literal(b"<"), Reference("nested"), Literal(b">")))))
    opened = kernel.open(Grammar({"root": Joined((Repeat(pair, 3, 5), Reference("nested"))), "nested": nested}))
    for text, rest in (
        (b"", b"(aa)" * 3 + b"ab"),
        (b"(b", b"a)" + b"(aa)" * 2 + b"ab"),
        (b"(aa)(bbb)(", b"aa)ab"),
        (b"(aa)" * 4, b"ab"),
        (b"(aa)" * 5 + b"<<<a", b"b>>>"),
    ):
        assert closed(kernel, opened, text) == rest, text


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]+$"},
        "size": {"enum": ["medium", "tiny", 1000]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "more": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["name", "size", "tags", "day"],
    "additionalProperties": False,
}
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
WHOLE = {
    "name": "Ada",
    "size": "medium",
    "tags": ["a\nü", "b", "c"],
    "more": {"name": "Bo", "size": 1000, "tags": ["", ""], "day": "1999-12-31"},
    "day": "2020-02-29",
}


def test_json_is_valid_wherever_it_ends(kernel: GrammarKernel) -> None:
    grammar = shape_of(json.dumps(SCHEMA), None, None)
    assert grammar is not None
    opened, data = kernel.open(grammar), json.dumps(WHOLE, ensure_ascii=False, separators=(",", ":")).encode()
    for length in range(len(data) + 1):
        rest = closed(kernel, opened, data[:length])
        assert rest is not None
        VALIDATOR.validate(json.loads(data[:length] + rest))
    assert closed(kernel, opened, b"") == b'{"name":"Aa","size":1000,"tags":["",""],"day":"0001-01-01"}'


def test_an_end_too_long_or_without_tokens_is_none(kernel: GrammarKernel) -> None:
    def ending(root: Expression, text: bytes = b"") -> Sequence[int]:
        constraint = Constraint(
            TokenGrammar(kernel.open(Grammar({"root": root})), lambda text: list(text.encode()), []), lambda _: None
        )
        constraint.extend(list(text))
        return constraint.closing()

    assert len(ending(Chars(((97, 97),), 16_384, None))) == 16_384 // 4
    assert ending(Chars(((97, 97),), 16_385, None)) == []
    assert ending(Joined((Literal("ü".encode()), Literal(SPECIAL + b"<b>"))), b"\xc3") == [0xBC, 257]
    assert ending(Chars(((252, 252),), 2, 2), b"\xc3") == [0xBC, 0xC3, 0xBC]
    assert ending(Literal(SPECIAL + b"<a>")) == []
