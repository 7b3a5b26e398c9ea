"""Masks of random schemas are those of llguidance, of which the exactness is known from 11,306 published schemas."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_core.grammar.kernel import GrammarKernel
from py_core.grammar.schema import canonical, schema_grammar
from tests.grammar.test_kernel import open_kernel

END = 0
TOKENS = [
    b"",
    *(bytes([byte]) for byte in range(1, 256)),
    b'":',
    b'","',
    b'"}',
    b'{"',
    b"tr",
    b"12",
    b"1.5",
    b"ab",
    b'a"',
]
FREE = {0x7F}
"""A character that JSON allows in strings, and llguidance does not."""


class Vocabulary:
    """These tokens, as llguidance takes them."""

    tokens = tuple(token or b"\xff<end>" for token in TOKENS)
    special_token_ids = (END,)
    eos_token_id, bos_token_id = END, None

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@pytest.fixture(scope="module")
def kernel() -> GrammarKernel:
    return open_kernel(TOKENS)


@pytest.fixture(scope="module")
def theirs() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary()))


NAMES = st.sampled_from(["a", "ab", "b", "tree"])


def bounded(kind: str, names: tuple[str, str], least: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(least, st.integers(0, 150)).map(
        lambda bounds: {"type": kind, names[0]: bounds[0], names[1]: sum(bounds)}
    )


WORDS = st.sampled_from(["a", "ab", "tree", 1, 12, True, None])
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([{"type": kind} for kind in ("integer", "number", "boolean", "null", "string")]),
    bounded("integer", ("minimum", "maximum"), st.integers(-20, 20)),
    bounded("string", ("minLength", "maxLength"), st.integers(0, 3)),
    st.sampled_from(["^a+b?$", "^[a-c]{2,3}$", "^(ab|b)*$"]).map(lambda like: {"type": "string", "pattern": like}),
    st.lists(WORDS, min_size=1, max_size=3, unique_by=repr).map(lambda words: {"enum": words}),
)


def inner(items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    objects = st.builds(
        lambda properties, count: {
            "type": "object", "properties": properties, "required": list(properties)[:count],
            "additionalProperties": False,
        },
        st.dictionaries(NAMES, items, min_size=1, max_size=3), st.integers(0, 3),
    )  # fmt: skip
    arrays = st.builds(
        lambda item, least, more: {"type": "array", "items": item, "minItems": least, "maxItems": least + more},
        items, st.integers(0, 2), st.integers(0, 2),
    )  # fmt: skip
    return objects | arrays | st.lists(items, min_size=1, max_size=3).map(lambda some: {"anyOf": some})


ROOTS = st.dictionaries(NAMES, st.recursive(LEAVES, inner, max_leaves=5), min_size=1, max_size=3).map(
    lambda properties: {
        "type": "object", "properties": properties, "required": ["a"] if "a" in properties else [],
        "additionalProperties": False,
    }
)  # fmt: skip
"""Objects: behind the quote that ends a schema of a string llguidance allows any rest of a token."""


@settings(max_examples=12, deadline=None)
@given(ROOTS, st.data())
def test_masks_are_the_same(
    kernel: GrammarKernel, theirs: llguidance.LLTokenizer, schema: dict[str, Any], data: st.DataObject
) -> None:
    opened, bits = kernel.open(schema_grammar(schema)), llguidance.numpy.allocate_token_bitmask(1, len(TOKENS))
    source = json.dumps(schema | {"x-guidance": {"whitespace_flexible": False}})
    matcher = llguidance.LLMatcher(theirs, llguidance.LLMatcher.grammar_from_json_schema(source), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    state, token = opened.begins, END
    for _ in range(12):
        llguidance.numpy.fill_next_token_bitmask(matcher, bits)
        ours, other = (np.flatnonzero(np.unpackbits(one.view(np.uint8), count=len(TOKENS), bitorder="little"))
                       for one in (opened.mask(state), bits[0]))  # fmt: skip
        assert opened.may_end(state) == (END in other)
        mine, its = set(ours.tolist()), set(other.tolist()) - {END}
        # Of a text that must come next it may allow only the tokens that a tokenizer makes of it: single bytes here.
        missing = {n for n in mine if n >= 256} if opened.forced(state) else set()
        # It writes -0 in ranges that have 0.
        spare = {ord("0")} if token == ord("-") else set()
        assert mine - missing - FREE <= its <= mine | spare
        further = sorted(mine - FREE - {ord("\\")})  # it has other escapes, for example no \/
        if not further:
            break
        token = int(data.draw(st.sampled_from(further)))
        after = opened.after_token(state, token)
        assert after is not None
        assert matcher.consume_token(token)
        state = after
    opened.close()


def test_the_order_of_properties_is_the_schemas() -> None:
    schema = {"properties": {"b": True, "a": {"properties": {"d": True, "c": True}}}}
    assert canonical(schema, {"a": {"c": 1.0, "d": "ä"}, "x": None, "b": []}) == '{"b":[],"a":{"d":"ä","c":1},"x":null}'
