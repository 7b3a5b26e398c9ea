"""Schemas one by one: refused ones, hostile ones, the order of properties, indented texts, numbers, formats."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from py_core.grammar.expressions import GrammarError
from py_core.grammar.schema import canonical, schema_grammar
from tests.grammar.reference import matches
from tests.random_examples import examples


def fits(schema: Any, text: str, **options: Any) -> bool:
    return matches(schema_grammar(schema, **options), text.encode())


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"properties": {"a": {"uniqueItems": True}}}, "#/properties/a/uniqueItems: not supported"),
        ({"properties": {"a/b": {"type": "any"}}}, "#/properties/a~1b/type: not supported"),
        ({"$ref": "http://example.com/s"}, "#/$ref: 'http://example.com/s' is in another document"),
        ({"$ref": "#/$defs/a"}, "#/$ref: there is no '#/$defs/a'"),
        ({"$ref": "#"}, "#: the schema refers to itself without an end"),
        ({"pattern": "(a)\\1"}, "#/pattern: "),
        ({"format": "regex"}, "#/format: regex is not supported"),
        ({"minProperties": 2}, "#/minProperties: not supported"),
        ({"minItems": 10**9}, "arrays of 1,000,000,000 items and more are too long"),
        ({"type": "string", "minLength": 10**9}, "#: texts of 1,000,000,000 characters and more are too long"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "no value is valid by the schema"),
        ({"maxLength": float("inf")}, "#/maxLength: a whole number is expected"),
        ({"items": {"const": 1, "minimum": "1"}}, "#/items/minimum: a number is expected"),
        ('{"const":' + "[" * 900 + "]" * 900 + "}", "the schema is nested too deeply"),
        ('{"not":' * 5000 + "{}" + "}" * 5000, "the schema is nested too deeply"),
        ('{"items":' * 800 + "{}" + "}" * 800, "the schema is nested too deeply"),
        ({"oneOf": [{"required": [str(at)]} for at in range(1000)]}, "the schema has too many alternatives"),
        ({"allOf": [{"anyOf": [{"required": [f"{at}{x}"]} for x in "ab"]} for at in range(30)]}, "the schema has too"),
        ({"properties": {f"a long name of a property, {at}": {} for at in range(20_000)}}, "the schema has too many"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_with_the_path(schema, sentence):
    with pytest.raises(GrammarError) as refused:
        schema_grammar(schema)
    assert str(refused.value).startswith(sentence)


def test_a_keyword_that_is_named_may_be_left_out():
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 2}
    assert fits(schema, "[1,1]", allow=["uniqueItems"])
    assert not fits(schema, "[1,1,1]", allow=["uniqueItems"])
    with pytest.raises(GrammarError):
        schema_grammar(schema, allow=["contains"])


def test_properties_have_the_schemas_order_and_others_follow():
    base = {"properties": {"b": {"type": "integer"}, "a": {}}, "required": ["c"]}
    schema = {"allOf": [{"$ref": "#/$defs/base"}], "properties": {"d": {"type": "null"}}, "$defs": {"base": base}}
    assert canonical(schema, {"x": 1, "d": None, "c": 2, "a": 3, "b": 4.0}) == '{"b":4,"a":3,"c":2,"d":null,"x":1}'
    assert fits(schema, '{"b":4,"a":3,"c":2,"d":null,"x":1}')
    assert not fits(schema, '{"a":3,"b":4,"c":2}')
    # the name of a listed property is not free, however it is written
    assert not fits(schema, '{"c":2,"\\u0064":1}')


def test_opposites_of_keywords():
    assert fits({"type": "integer", "not": {"minimum": 3}}, "2")
    assert not fits({"type": "integer", "not": {"minimum": 3}}, "3")
    assert fits({"not": {"required": ["a"]}, "type": "object"}, '{"b":1}')
    assert not fits({"not": {"required": ["a"]}, "type": "object"}, '{"a":1}')
    either = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object", "properties": {"a": {}, "b": {}}}
    assert [text for text in ('{"a":1}', '{"b":1}', '{"a":1,"b":1}', "{}") if fits(either, text)] == [
        '{"a":1}',
        '{"b":1}',
    ]
    chosen = {
        "properties": {"kind": {"enum": ["x", "y"]}, "more": {}},
        "if": {"properties": {"kind": {"const": "x"}}, "required": ["kind"]},
        "then": {"required": ["more"]},
    }
    assert [fits(chosen, text) for text in ('{"kind":"x"}', '{"kind":"y"}', "{}")] == [False, True, True]


def test_the_old_spellings_of_drafts():
    old = {"$schema": "http://json-schema.org/draft-04/schema#"}
    assert not fits({**old, "type": "integer", "minimum": 3, "exclusiveMinimum": True}, "3")
    assert fits({**old, "items": [{"type": "null"}], "additionalItems": {"type": "string"}}, '[null,"a"]')
    assert not fits({**old, "items": [{"type": "null"}], "additionalItems": False}, "[null,1]")
    assert fits({**old, "$ref": "#/definitions/a", "type": "null", "definitions": {"a": {"type": "string"}}}, '"a"')
    inner = {
        "id": "http://x.org/a",
        "definitions": {"n": {"type": "null"}},
        "properties": {"n": {"$ref": "#/definitions/n"}},
    }
    assert not fits({**old, "id": "http://x.org/", "properties": {"b": {"$ref": "a"}}, "definitions": {"c": inner}},
                    '{"b":{"n":1}}')  # fmt: skip


@pytest.mark.parametrize("value", [{}, {"a": []}, {"a": [1, {"b": {}}], "c": {"d": [[], [None, True]]}}, [[[[1]]]]])
def test_indented_texts(value):
    schema = {"properties": {"a": {"type": "array"}}, "$defs": {}}
    assert fits(schema, json.dumps(value, indent=2), indent=2)
    assert fits(schema, json.dumps(value, indent=2), indent=4) is (json.dumps(value, indent=2) == json.dumps(value))
    assert fits(schema, json.dumps(value, separators=(",", ":"))) is True
    for text in (json.dumps(value), json.dumps(value, indent=4), json.dumps(value, separators=(",", ":"))):
        assert fits(schema, text, loose=True)
    assert not fits(schema, '{"a":  []}', loose=True)
    assert not fits(schema, '{\n\n"a": []}', loose=True)


BOUNDS = st.one_of(st.integers(-20, 120), st.decimals(-3, 3, places=3).map(float), st.sampled_from([1e-5, 9.99e-5, 0]))


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["number", "integer"])},
        optional={
            "minimum": BOUNDS, "exclusiveMinimum": BOUNDS, "maximum": BOUNDS, "exclusiveMaximum": BOUNDS,
            "multipleOf": st.sampled_from([2, 7, 0.01, 0.25, 1.5, 10]),
        },
    ),
    st.lists(BOUNDS, min_size=8, max_size=8),
)  # fmt: skip
@example({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2.5}, [])
@examples(200)
def test_numbers_in_ranges(schema, values):
    try:
        grammar = schema_grammar(schema)
    except GrammarError:
        grammar = None
    bounds = {word: Fraction(Decimal(repr(value))) for word, value in schema.items() if word != "type"}
    near = [schema[word] + change for word in bounds for change in (0, 0.001, -0.001, 1)]
    for value in (*values, *near):
        number = Fraction(Decimal(repr(value)))
        valid = (
            (schema["type"] == "number" or number.denominator == 1)
            and bounds.get("minimum", number) <= number <= bounds.get("maximum", number)
            and bounds.get("exclusiveMinimum", number - 1) < number < bounds.get("exclusiveMaximum", number + 1)
            and (number / bounds.get("multipleOf", number or 1)).denominator == 1
        )
        text = canonical({}, value)
        assert (grammar is not None and matches(grammar, text.encode())) is valid, text


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("date", "2024-02-29 2000-02-29 1999-12-31", "2023-02-29 1900-02-29 2024-04-31 0000-01-01 24-01-01"),
        (
            "time",
            "23:59:59Z 00:00:00.5+01:30 23:59:60Z 01:29:60.5+01:30 15:59:60-08:00",
            "24:00:00Z 00:00:00 12:00:60Z 12:00:00+24:00 01:29:60-01:30 15:59:60Z",
        ),
        ("date-time", "2024-02-29T12:00:00.123Z", "2024-02-30T12:00:00Z 2024-02-29_12:00:00Z"),
        ("duration", "P1Y2M3DT4H5M6S P4W PT1H", "P P1YT P1W2D PT P1S 1Y"),
        ("email", "a.b@c.de", "a a@ @b.de a@b..de a..b@c.de"),
        ("hostname", "a-b.example", "-a.b a..b a_b"),
        ("ipv4", "127.0.0.1 255.255.255.255", "256.0.0.1 1.2.3 01.2.3.4"),
        ("ipv6", ":: ::1 1:2:3:4:5:6:7:8 1::2 ::ffff:1.2.3.4", "1 1::2::3 1:2:3:4:5:6:7:8:9 12345::"),
        ("uri", "http://a.b/c?d#e urn:isbn:1 mailto:a@b.c", "a/b //a/b http://a\\b"),
        ("uri-reference", "a/b //a/b ?x #y http://[::1]/", "a\\b #a#b"),
        ("iri", "http://ƒøø.ßår/?∂éœ=πîx#πîüx", "âππ http://a\\\\b /a"),
        ("uri-template", "http://a.b/{c}/{+d:3,e*} ü", "a/{b a} {a}} {:3}"),
        ("uuid", "2eb8aa08-AA98-11ea-b4aa-73b441d16380", "2eb8aa08aa9811eab4aa73b441d16380"),
        ("json-pointer", "/a~0b/~1", "a /~2"),
        ("no-format-at-all", "anything", ""),
    ],
)
def test_formats(name, right, wrong):
    grammar = schema_grammar({"type": "string", "format": name})
    assert [text for text in right.split() if not matches(grammar, json.dumps(text).encode())] == []
    assert [text for text in wrong.split() if matches(grammar, json.dumps(text).encode())] == []
