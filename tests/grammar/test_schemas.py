"""Grammars of JSON Schemas against the `jsonschema` package: random schemas and values, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.models import build_outputs
from py_core.grammar.expressions import (
    Automaton,
    Chars,
    CharSet,
    Choice,
    Expression,
    Grammar,
    GrammarError,
    Joined,
    Literal,
    Reference,
    Repeat,
)
from py_core.grammar.kernel import GrammarKernel, OpenGrammar
from py_core.grammar.schema import canonical, schema_grammar
from py_core.grammar.wasmtime_kernel import WasmtimeGrammarHost
from tests.random_examples import examples

NAMES = st.sampled_from(["a", "b", "ab", "é"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, -1.5, 2.25, 1e-7, 10**20]),
    st.sampled_from(["", "a", "b", "ab", "ba1", "é", '"\\', "😀"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5
)
COUNTS = st.integers(0, 3)
BOUNDS = st.sampled_from([-2, 0, 1, 2.5, 7, 10])
PATTERNS = st.sampled_from(["a", "^b", "^(a|b)*$", "[0-9]", "^.$", ""])
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
PLAIN = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
    "enum": st.lists(VALUES, min_size=1, max_size=4),
    "const": VALUES,
    "minimum": BOUNDS, "maximum": BOUNDS, "exclusiveMinimum": BOUNDS, "exclusiveMaximum": BOUNDS,
    "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
    "minLength": COUNTS, "maxLength": COUNTS, "pattern": PATTERNS,
    "minItems": COUNTS, "maxItems": COUNTS, "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2, unique=True),
    "minProperties": COUNTS, "maxProperties": COUNTS,
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
}  # fmt: skip


def applying(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return {
        "properties": named, "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "additionalProperties": inner, "propertyNames": inner, "items": inner, "prefixItems": several,
        "contains": inner, "minContains": st.integers(0, 2), "maxContains": st.integers(0, 2),
        "allOf": several, "anyOf": several, "oneOf": several, "not": inner, "if": inner, "then": inner, "else": inner,
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
        "unevaluatedProperties": inner, "unevaluatedItems": inner,
        "$ref": st.just("#/$defs/d"),
    }  # fmt: skip


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, refers: bool = True) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.booleans())
    words = dict(PLAIN)
    if depth:
        words |= applying(schemas(depth - 1, refers))
    if not refers:
        words.pop("$ref", None)
    elif draw(st.integers(0, 9)) == 0:
        return {draw(st.sampled_from(["items", "additionalProperties"])): {"$ref": "#"}}
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=3, unique=True))
    return {word: draw(words[word]) for word in chosen}


@st.composite
def documents(draw: st.DrawFn) -> Any:
    schema = draw(schemas())
    if isinstance(schema, dict) and "$ref" in json.dumps(schema):
        schema["$defs"] = {"d": draw(schemas(1, refers=False))}
    return schema


@pytest.fixture(scope="module")
def kernel() -> GrammarKernel:
    tokens = [bytes([byte]) for byte in range(256)]
    return GrammarKernel(WasmtimeGrammarHost(build_outputs.grammar_kernel_path()), tokens)


def fits(grammar: OpenGrammar, text: str) -> bool:
    state, _ = grammar.after_bytes(grammar.begins, text.encode())
    return state is not None and grammar.may_end(state)


def related(schema: Any) -> Iterator[Any]:
    """Values that stand in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("enum", ())
        if "const" in schema:
            yield schema["const"]
        for word, value in schema.items():
            if word not in ("enum", "const"):
                yield from related(value)
        for word in ("properties", "dependentRequired"):
            if word in schema:
                firsts = {name: next(related(part), 1) for name, part in schema[word].items()}
                yield firsts
        if "required" in schema:
            yield dict.fromkeys(schema["required"], 1)
    elif isinstance(schema, list):
        for part in schema:
            yield from related(part)


@given(documents(), st.lists(VALUES, min_size=6, max_size=6))
@examples(150)
def test_same_values(kernel, schema, values):
    opened = None
    try:
        opened = kernel.open(schema_grammar(schema))
    except GrammarError as error:
        if str(error) != "no value is valid by the schema":
            return
    validator = Draft202012Validator(schema)
    for value in (*values, *related(schema)):
        text = canonical(schema, value)
        assert (opened is not None and fits(opened, text)) is validator.is_valid(value), text
    if opened:
        opened.close()


class Sampler:
    """Draws texts of a grammar, mostly short ones."""

    def __init__(self, grammar: Grammar, random: Random) -> None:
        self.grammar, self.random = grammar, random
        self.left = 60
        self.cost = dict.fromkeys(grammar.rules, 10**6)
        for _ in grammar.rules:
            self.cost = {name: min(self.cost[name], 1 + self.costs(rule)) for name, rule in grammar.rules.items()}

    def costs(self, one: Expression) -> int:
        """About how many rules a text needs at least."""
        match one:
            case Joined(items):
                return sum(map(self.costs, items))
            case Choice(items):
                return min(map(self.costs, items), default=10**6)
            case Repeat(item, least, _):
                return least and self.costs(item) * least
            case Reference(name):
                return self.cost[name]
        return 0

    def text(self, one: Expression) -> bytes:
        self.left -= 1
        match one:
            case Literal(text):
                return text
            case Joined(items):
                return b"".join(map(self.text, items))
            case Choice(items):
                cheapest = min(map(self.costs, items))
                items = tuple(item for item in items if self.costs(item) < 10**6)
                if self.left < 0:
                    items = tuple(item for item in items if self.costs(item) == cheapest)
                return self.text(self.random.choice(items))
            case Repeat(item, least, most):
                count = least + (self.left > 0 and self.random.randint(0, min(2, 2 if most is None else most - least)))
                return b"".join(self.text(item) for _ in range(count))
            case Reference(name):
                return self.text(self.grammar.rules[name])
            case Chars(allowed, least, most, in_json):
                count = least + self.random.randint(0, min(3, 3 if most is None else most - least))
                return b"".join(self.char(allowed, in_json) for _ in range(count))
            case Automaton():
                return self.walk(one)

    def char(self, allowed: CharSet, in_json: bool) -> bytes:
        first, last = self.random.choice(allowed)
        near = [code for code in b'ab1"\\' if first <= code <= last]
        char = chr(self.random.choice([first, last, self.random.randint(first, last), *near]))
        if not in_json:
            return char.encode()
        return json.dumps(char, ensure_ascii=self.random.random() < 0.5)[1:-1].encode()

    def walk(self, automaton: Automaton) -> bytes:
        text, state = bytearray(), 0
        for _ in range(300):
            if state in automaton.accepting and (not automaton.moves[state] or self.random.random() < 0.3):
                return bytes(text)
            first, last, state = self.random.choice(automaton.moves[state])
            text.append(self.random.randint(first, last))
        return bytes(text) if state in automaton.accepting else self.walk(automaton)


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no name is repeated."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise KeyError
    return dict(pairs)


@given(documents(), st.randoms(use_true_random=False))
@examples(150)
def test_texts_of_grammars_are_valid(schema, random):
    try:
        grammar = schema_grammar(schema)
    except GrammarError:
        return
    validator = Draft202012Validator(schema)
    for _ in range(6):
        text = Sampler(grammar, random).text(grammar.rules["root"]).decode()
        with suppress(KeyError, OverflowError):
            value = json.loads(text, object_pairs_hook=unrepeated)
            assert validator.is_valid(value), text
