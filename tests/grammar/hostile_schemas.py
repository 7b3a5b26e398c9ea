"""Schemas that are made to take long, or much memory, or that have no texts: by name, as a text.

Each is refused with a sentence, or answers follow it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from app.generation.grammars import shape_of
from py_core.grammar.expressions import GrammarError
from py_core.grammar.kernel import GrammarKernel

MOST_BYTES = 256 << 20
"""The most that the kernel and Python may take for one of them."""


def nested(count: int, keyword: str, in_list: bool = False) -> str:
    """Schemas within each other, by a keyword."""
    before, after = ("[", "]") if in_list else ("", "")
    return f'{{"{keyword}":{before}' * count + "{}" + f"{after}}}" * count


def doubling(count: int, made: Any) -> Any:
    """Definitions of which each refers to the next one twice."""
    return {"$ref": "#/$defs/d0", "$defs": {f"d{at}": made(at) for at in range(count)} | {f"d{count}": {}}}


def texts(count: int) -> dict[str, Any]:
    return {f"name of property {at}": {"type": "string", "maxLength": at} for at in range(count)}


def required(*names: str) -> dict[str, Any]:
    return {"required": names}


def _schemas() -> Iterator[tuple[str, Any]]:
    yield (
        "choices of properties, 2 ** 30",
        {"allOf": [{"anyOf": [required(f"a{n}"), required(f"b{n}")]} for n in range(30)]},
    )
    yield (
        "exclusive choices of properties",
        {
            "allOf": [
                {"oneOf": [{"properties": {f"a{n}": {"type": "string"}}, **required(f"a{n}")}, required(f"b{n}")]}
                for n in range(30)
            ]
        },
    )
    yield (
        "one of 2,000 objects",
        {"oneOf": [{"properties": {f"a{n}": {"type": "string"}}, **required(f"a{n}")} for n in range(2000)]},
    )
    yield (
        "one of 2,000 objects by a constant",
        {"oneOf": [{"properties": {"a": {"const": n}}, **required("a")} for n in range(2000)]},
    )
    yield "one of 30 open objects", {"oneOf": [{"properties": {f"a{n}": {"type": "string"}}} for n in range(30)]}
    yield "5,000 alternatives", {"anyOf": [{"properties": {f"a{n}": {"type": "string"}}} for n in range(5000)]}
    yield "5,000 that hold together", {"allOf": [{"properties": {f"a{n}": {"type": "string"}}} for n in range(5000)]}
    yield (
        "300 conditions",
        {
            "type": "object",
            **required("k"),
            "allOf": [{"if": {"properties": {"k": {"const": n}}}, "then": required(f"a{n}")} for n in range(300)],
        },
    )
    yield (
        "100 conditions on any value",
        {
            "allOf": [
                {"if": {"properties": {"k": {"const": n}}, **required("k")}, "then": required(f"a{n}")}
                for n in range(100)
            ]
        },
    )
    yield (
        "none of 40 objects",
        {"not": {"anyOf": [{"properties": {f"a{n}": {"type": "string"}}, **required(f"a{n}")} for n in range(40)]}},
    )
    yield "200 dependencies", {"dependentRequired": {f"a{n}": [f"b{n}"] for n in range(200)}}
    yield "references that double", doubling(50, lambda n: {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2})
    yield (
        "alternatives that double",
        doubling(
            40,
            lambda n: {
                "anyOf": [
                    {"properties": {f"x{n}": {"type": "string"}}, "allOf": [{"$ref": f"#/$defs/d{n + 1}"}]},
                    {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}], **required(f"y{n}")},
                ]
            },
        ),
    )
    yield "itself", {"$ref": "#"}
    yield "itself or a text", {"anyOf": [{"$ref": "#"}, {"type": "string"}]}
    yield "not itself", {"not": {"$ref": "#"}}
    yield "needs itself", {"type": "object", "properties": {"a": {"$ref": "#"}}, **required("a")}
    yield "lists of itself", {"type": "array", "items": {"$ref": "#"}}
    yield "20,000 objects within each other", '{"properties":{"a":' * 20000 + "{}" + "}}" * 20000
    yield "300 objects within each other", '{"properties":{"a":' * 300 + "{}" + "}}" * 300
    yield "5,000 times not", nested(5000, "not")
    yield "300 times not", nested(300, "not")
    yield "100,000 lists within each other", nested(100_000, "items")
    yield "300 times all of", nested(300, "allOf", True)
    yield "a constant of 100,000 lists", '{"const":' + "[" * 100_000 + "]" * 100_000 + "}"
    yield "(a|a)*", {"type": "string", "pattern": "^" + "(a|a)*" * 20 + "$"}
    yield "(a|a)* within itself", {"type": "string", "pattern": "(" * 100 + "a|a" + ")*" * 100 + "b"}
    yield "repeats of repeats", {"type": "string", "pattern": "^((a{0,100}){0,100}){0,100}$"}
    yield "100,000 repeats", {"type": "string", "pattern": "^a{0,100000}b{0,100000}$"}
    yield "a pattern that remembers 30 characters", {"type": "string", "pattern": "a.{30}b"}
    yield "two patterns that remember", {"allOf": [{"pattern": "a.{12}b"}, {"pattern": "b.{12}a"}], "type": "string"}
    yield "a pattern of 1 MB", {"pattern": "(a|b)*c" * 140_000}
    yield "six patterns of names", {"patternProperties": {f"a{n}.*b{n}": {"type": "string"} for n in range(6)}}
    yield "1 MB of properties", {"properties": texts(16_000)}
    yield "1 MB of properties and no others", {"properties": texts(16_000), "additionalProperties": False}
    yield "1 MB of texts", {"enum": [f"value number {n}" for n in range(50_000)]}
    yield "1 MB of numbers", {"enum": list(range(130_000))}
    yield "1 MB of lists", {"enum": [{"a": [n]} for n in range(60_000)]}
    yield "a name of 1 MB", {"properties": {"x" * 1_000_000: {}}}
    yield "a constant of 1 MB", {"const": "x" * 1_000_000}
    yield "long names that begin alike", {"properties": {"x" * 99 + str(n): {} for n in range(8000)}}
    yield "10,000 that are required", required(*(f"a{n}" for n in range(10_000)))
    yield "20,000 items, each of its own", {"prefixItems": [{"type": "integer", "minimum": n} for n in range(20_000)]}
    yield "texts of 10 ** 9 and more", {"type": "string", "minLength": 10**9}
    yield "texts up to 10 ** 9", {"type": "string", "maxLength": 10**9}
    yield "10 ** 9 items and more", {"type": "array", "minItems": 10**9}
    yield (
        "10 ** 9 items within 10 ** 9 items",
        {"type": "array", "maxItems": 10**9, "items": {"type": "array", "maxItems": 10**9}},
    )
    yield "10 ** 9 properties", {"type": "object", "maxProperties": 10**9}
    yield "500 of 1,000 properties", {"properties": {f"a{n}": {} for n in range(1000)}, "maxProperties": 500}
    yield "a bound of 400 digits", {"type": "integer", "minimum": 10**400}
    yield "a number of 10,000 digits", '{"minimum": ' + "9" * 10_000 + "}"
    yield "multiples of a large number", {"type": "integer", "multipleOf": 999_999_937}
    yield "multiples within bounds", {"type": "integer", "multipleOf": 997, "minimum": 12345678, "maximum": 99999999999}
    yield "multiples of 1e-300", {"type": "number", "multipleOf": 1e-300}
    yield (
        "multiples of 100 numbers",
        {"properties": {f"p{n}": {"type": "integer", "multipleOf": 900 + n} for n in range(100)}},
    )
    yield (
        "10,000 numbers within bounds",
        {
            "properties": {
                f"p{n}": {"type": "number", "minimum": n * 1.2345, "maximum": 1e9 + n * 3.33} for n in range(10_000)
            }
        },
    )
    yield (
        "patterns of names in 40 objects",
        {
            "properties": {
                f"p{n}": {"type": "object", "patternProperties": {f"a{n}.*b{i}": {"type": "string"} for i in range(4)}}
                for n in range(40)
            }
        },
    )
    yield "all different", {"type": "array", "items": {"enum": list(range(1000))}, "uniqueItems": True}
    yield "10 ** 9 that are contained", {"type": "array", "contains": {"const": 1}, "minContains": 10**9}
    yield "another document", {"$ref": "http://example.com/schema.json"}
    yield "a file", {"$ref": "file:///etc/passwd"}
    yield "half of a character", {"const": "\ud800"}
    yield "no schema", [1]
    yield "no JSON", '{"minimum": NaN}'


HOSTILE = {name: one if isinstance(one, str) else json.dumps(one) for name, one in _schemas()}


def refusal_of(kernel: GrammarKernel, schema: str, tokens: int = 8) -> str:
    """The sentence that refuses a schema. "" if random tokens that its masks allow could be taken."""
    draw = np.random.default_rng(0)
    try:
        grammar = shape_of(schema, None, None)
        assert grammar is not None
        opened = kernel.open(grammar)
        state: int | None = opened.begins
        for _ in range(tokens):
            assert state is not None
            bits = np.unpackbits(opened.mask(state).view(np.uint8), bitorder="little")
            if not bits.any():
                break
            state = opened.after_token(state, int(draw.choice(np.flatnonzero(bits))))
        opened.close()
    except GrammarError as error:
        return str(error)
    return ""
