"""The grammar of an answer that may call tools: whatever the model writes, its calls can be read, name a tool, and have
arguments that are valid by the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from py_core.grammar.characters import char_set, complement
from py_core.grammar.expressions import (
    EMPTY,
    NOTHING,
    SPECIAL,
    Chars,
    Expression,
    Grammar,
    GrammarError,
    Literal,
    Reference,
)
from py_core.grammar.forms import ANYTHING, choice, joined, repeat
from py_core.grammar.schema import schema_grammar
from py_core.grammar.triggers import Trigger, renamed, text_without, triggered
from py_core.tool_calls.definitions import ChoiceMode, ToolChoice, ToolDefinition, ToolError, is_plain_text
from py_core.tool_calls.forms import JSON, Body, CallForm

MOST_CALLS = 32
"""The most calls of an answer: small models sometimes do not find an end."""
_NOT_TEXT = ("{", "[", "```json", "```tool_c", "```xml", "```\n", "```\t", "``` ")
"""The beginnings of an answer that are calls in forms without a tag; the reader takes them for calls."""
_BLANK = Chars(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)), 0, 8)
_JOINED = frozenset(["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"])
_OF_OBJECTS = frozenset(
    ["minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired", "dependencies",
     "unevaluatedProperties"]
)  # fmt: skip
_LINES = Chars(complement(char_set([(0x3C, 0x3C)])), 0, None)
"""A string in XML: without <, which could end it."""


def call_shape(
    tools: Sequence[ToolDefinition], chosen: ToolChoice, form: CallForm, control_tokens: Collection[str] = (), *,
    is_parallel: bool = True, allow: Collection[str] = (),
) -> Grammar | None:  # fmt: skip
    """Return the grammar of an answer, the same one for the same arguments; None if no call may be made.

    An answer that calls ends with the calls; with `auto` text may stand before them, if the form has a tag, or instead
    of them. With `auto` a single object may also name a tool that is not there, and then has no arguments: so a small
    model says that none of the tools fits (`BadCall.tool`). Objects have only the properties that their schema lists,
    unless it says `additionalProperties`.

    control_tokens: of the vocabulary; tags that are among them are these tokens. is_parallel: several calls may be
    made. allow: keywords of schemas that are left out if they cannot be kept.
    Raises ToolError, with the tool and the path of the keyword, if a schema cannot be kept.
    """
    if chosen.mode is ChoiceMode.none or not tools:
        return None
    named = [tool for tool in tools if not chosen.name or tool.name == chosen.name]
    texts = tuple((tool.name, json.dumps(tool.parameters)) for tool in named)
    special = tuple(sorted(mark for mark in form.marks if mark in control_tokens))
    return _shape(texts, chosen.mode is ChoiceMode.auto, form, special, is_parallel, tuple(sorted(allow)))


def words_shape(form: CallForm, control_tokens: Collection[str] = ()) -> Grammar:
    """Return the grammar of an answer without calls: the beginnings of calls are not allowed. control_tokens: as in
    `call_shape`; no text has one of them."""
    if form.is_bare:
        return Grammar({"root": _text_without_calls()})
    return Grammar({"root": ANYTHING if form.begin in control_tokens else text_without((form.begin,))})


@lru_cache(maxsize=8)
def _shape(
    tools: tuple[tuple[str, str], ...], is_free: bool, form: CallForm, special: tuple[str, ...], is_parallel: bool,
    allow: tuple[str, ...],
) -> Grammar:  # fmt: skip
    writer = _CallWriter(form, special, is_parallel, allow, is_free)
    calls = writer.calls([(name, _closed(json.loads(text))) for name, text in tools])
    if not is_free:
        return Grammar({**writer.rules, "root": calls})
    if form.is_bare:
        return Grammar({**writer.rules, "root": choice((calls, _text_without_calls()))})
    first, rest = writer.cut
    return triggered([Trigger(first, Grammar({**writer.rules, "root": rest}))], most=1, goes_on=False)


class _CallWriter:
    """The rules of calls in one form."""

    def __init__(
        self, form: CallForm, special: Collection[str], is_parallel: bool, allow: Collection[str], takes_others: bool
    ) -> None:  # fmt: skip
        """takes_others: tools that are not there may be named."""
        self._takes_others = takes_others
        self._form, self._special, self._allow = form, special, allow
        self._more = MOST_CALLS - 1 if is_parallel else 0
        self.rules: dict[str, Expression] = {}
        self.cut: tuple[bytes, Expression] = (b"", EMPTY)
        """The first tag, and what follows it."""

    def calls(self, tools: Sequence[tuple[str, dict[str, Any]]]) -> Expression:
        """The calls of an answer, at least one."""
        form, line = self._form, Literal(self._form.line.encode())
        begin = self._mark("" if form.is_bare else form.begin)
        end = self._mark(form.end)
        if form is JSON:
            return self._in_json(tools)
        other: Expression = NOTHING
        if form.body in (Body.OBJECT, Body.LIST):
            other = self._objects(tools)
        else:
            self.rules["call"] = choice(self._named(number, *tool) for number, tool in enumerate(tools))
        one, close = Reference("call"), Literal(end)
        if form.body in (Body.LIST, Body.PYTHON):
            items = choice((self._several(one, Literal(b", ")), other))
            self.cut = begin, joined((Literal(b"["), items, Literal(b"]"), close))
        else:
            again = joined((line, close, Literal(form.between.encode()), Literal(begin), line))
            items = choice((self._several(one, again), other))
            self.cut = begin, joined((line, items, line, close))
        return joined((Literal(begin), self.cut[1]))

    def _several(self, one: Expression, between: Expression) -> Expression:
        return joined((one, repeat(joined((between, one)), 0, self._more)))

    def _mark(self, text: str) -> bytes:
        return (SPECIAL if text in self._special else b"") + text.encode()

    def _objects(self, tools: Sequence[tuple[str, dict[str, Any]]]) -> Expression:
        """The rule `call`: an object of JSON that calls one of the tools. Returns one that names none of them."""
        key = self._form.key
        defined = {
            str(number): _object_schema(name, key, schema, number) for number, (name, schema) in enumerate(tools)
        }
        names = [name for name, _ in tools]
        schema = {"$defs": defined, "anyOf": [{"$ref": f"#/$defs/{number}"} for number in defined]}
        self.rules["call"] = self._add("call", schema, names, "")
        return self._add("other", _other_schema(names), names, "") if self._takes_others else NOTHING

    def _in_json(self, tools: Sequence[tuple[str, dict[str, Any]]]) -> Expression:
        """An object, or a list or lines of them, alone or in a code block: as small models like it."""
        other, one, lines = self._objects(tools), Reference("call"), Chars(((0x0A, 0x0A),), 1, 2)
        found = [other, self._several(one, lines)]
        if self._more:
            items = self._several(one, joined((Literal(b","), _BLANK)))
            found.append(joined((Literal(b"["), _BLANK, items, _BLANK, Literal(b"]"))))
        self.rules["calls"] = choice(found)
        calls = Reference("calls")
        return choice((calls, joined((Literal(b"```json\n"), calls, Literal(b"\n```")))))

    def _named(self, number: int, name: str, schema: dict[str, Any]) -> Expression:
        """A call that begins with the tool's name."""
        body, start = self._form.body, name.encode()
        if body is Body.NAMED:
            made = self._add(number, schema, [name], "")
            return joined((Literal(start), Literal(self._mark("[ARGS]")), made))
        if body is Body.PYTHON:
            inside = self._arguments(number, name, schema, ("", "=", ""), Literal(b", "))
            return joined((Literal(start + b"("), inside, Literal(b")")))
        if body is Body.QUOTED:
            inside = self._arguments(number, name, schema, ("", ":", ""), Literal(b","))
            return joined((Literal(b"call:" + start + b"{"), inside, Literal(b"}")))
        inside = self._arguments(number, name, schema, ("<parameter=", ">\n", "\n</parameter>\n"), EMPTY)
        return joined((Literal(b"<function=" + start + b">\n"), inside, Literal(b"</function>")))

    def _arguments(
        self, number: int, tool: str, schema: dict[str, Any], around: tuple[str, str, str], comma: Expression
    ) -> Expression:
        """Arguments by name, in the schema's order. around: stands before a name, behind it, and behind its value."""
        for keyword in schema:
            if keyword in _JOINED | _OF_OBJECTS and keyword not in self._allow:
                raise _refused(tool, f"#/{keyword}: not supported for this model's calls")
        if schema.get("additionalProperties", False) is not False and "additionalProperties" not in self._allow:
            raise _refused(tool, "#/additionalProperties: not supported for this model's calls")
        required = schema.get("required", [])
        shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
        pairs = list[tuple[Expression, bool]]()
        for place, (name, inner) in enumerate(schema.get("properties", {}).items()):
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise _refused(tool, f"#/properties/{name}: the name is not supported for this model's calls")
            inner = inner if isinstance(inner, dict) else {}
            value = self._value(number, place, tool, name, inner, shared)
            before, behind, after = (part.encode() for part in around)
            pair = joined((Literal(before + name.encode() + behind), value, Literal(after)))
            pairs.append((pair, name in required))
        return self._listed(number, pairs, comma)

    def _listed(self, number: int, pairs: Sequence[tuple[Expression, bool]], comma: Expression) -> Expression:
        """Pairs with commas between them; those that are not required may be left out."""
        later: Expression = EMPTY  # the rest behind a pair
        first: Expression = EMPTY  # the same as the beginning
        for place in range(len(pairs) - 1, -1, -1):
            pair, required = pairs[place]
            name = f"rest{number}.{place}"
            here = joined((pair, later))
            self.rules[name] = here
            there = Reference(name)
            first = there if required else choice((there, first))
            later = joined((comma, there)) if required else choice((joined((comma, there)), later))
        return first

    def _value(
        self, number: int, place: int, tool: str, name: str, schema: dict[str, Any], shared: Mapping[str, Any]
    ) -> Expression:
        quotes = self._quotes()
        if quotes is not None and is_plain_text(schema):
            text: Expression = ANYTHING if quotes[0] else _LINES
            if "enum" in schema:
                text = choice(Literal(str(value).encode()) for value in schema["enum"])
            return joined((Literal(quotes[0]), text, Literal(quotes[1])))
        return self._add(f"{number}.{place}", {**shared, **schema}, [tool], f"/properties/{name}")

    def _quotes(self) -> tuple[bytes, bytes] | None:
        """The marks around a string that has no quotes of JSON."""
        if self._form.body is Body.QUOTED and self._form.quote in self._special:
            quote = self._mark(self._form.quote)
            return quote, quote
        return (b"", b"") if self._form.body is Body.XML else None

    def _add(self, number: int | str, schema: Mapping[str, Any], tools: Sequence[str], place: str) -> Expression:
        """The rules of a schema, and a reference to it."""
        made = self._grammar(dict(schema), tools, place)
        self.rules |= {f"value{number}.{name}": renamed(rule, f"value{number}") for name, rule in made.rules.items()}
        return Reference(f"value{number}.{made.root}")

    def _grammar(self, schema: dict[str, Any], tools: Sequence[str], place: str = "") -> Grammar:
        try:
            return schema_grammar(schema, loose=True, allow=self._allow)
        except GrammarError as error:
            where = re.match(r"#/\$defs/(\d+)/properties/\w+(?=[/:])", str(error))
            tool = tools[int(where[1])] if where and len(tools) > int(where[1]) else tools[0]
            said = str(error)
            said = "#" + said[where.end() :] if where else said.replace("#/", f"#{place}/", 1)
            raise _refused(tool if where or len(tools) == 1 else ", ".join(tools[:4]), said) from None


def _refused(tool: str, why: str) -> ToolError:
    return ToolError(
        "tools.schema", "The parameters of the tool {tool} cannot be kept whole: {why}.", tool=tool, why=why.rstrip(".")
    )  # fmt: skip


def _object_schema(name: str, key: str, schema: dict[str, Any], number: int) -> dict[str, Any]:
    """The schema of a call as an object. References within the tool's schema follow it to its new place."""
    moved = _moved(schema, f"#/$defs/{number}/properties/{key}")
    return {
        "type": "object",
        "properties": {"name": {"const": name}, key: moved},
        "required": ["name", key],
        "additionalProperties": False,
    }


def _other_schema(names: list[str]) -> dict[str, Any]:
    """The schema of a call of a tool that is not there."""
    name = {"type": "string", "pattern": "^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$", "not": {"enum": names}}
    return {"type": "object", "properties": {"name": name}, "required": ["name"], "additionalProperties": False}


def _moved(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        return {
            name: place + inner[1:]
            if name == "$ref" and isinstance(inner, str) and inner[:2] in ("#", "#/")
            else _moved(inner, place)
            for name, inner in value.items()
        }
    return [_moved(inner, place) for inner in value] if isinstance(value, list) else value


def _closed(schema: Any) -> Any:
    """The schema with objects that have only the properties that are listed, if nothing else is said about others."""
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    if isinstance(closed.get("properties"), dict):
        closed["properties"] = {name: _closed(inner) for name, inner in closed["properties"].items()}
        others = ("additionalProperties", "patternProperties", "unevaluatedProperties")
        if not _JOINED & closed.keys() and not any(keyword in closed for keyword in others):
            closed["additionalProperties"] = False
    if isinstance(closed.get("items"), dict):
        closed["items"] = _closed(closed["items"])
    return closed


def _text_without_calls() -> Expression:
    """Text that does not begin as a call does in a form without tags; or none."""
    return joined((_BLANK, _other_than(_NOT_TEXT, barred=_BLANK.allowed)))


def _other_than(beginnings: Sequence[str], barred: Sequence[tuple[int, int]] = ()) -> Expression:
    """The texts that begin with none of these, nor with a barred character; the empty one is there."""
    following: dict[str, list[str]] = {}
    for text in beginnings:
        following.setdefault(text[0], []).append(text[1:])
    others = complement(char_set([*((ord(char), ord(char)) for char in following), *barred]))
    longer = [
        joined((Literal(char.encode()), _other_than(rests))) for char, rests in following.items() if "" not in rests
    ]
    return choice((EMPTY, joined((Chars(others), ANYTHING)), *longer))
