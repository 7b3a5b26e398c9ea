"""Reads schemas: what each keyword says of the values, and what it does not allow.

The values of a schema are a `Form`: alternatives by type. Keywords that hold together are the products of forms,
`anyOf` is their union; `not`, `oneOf` and `if` take the opposites of keywords, which are unions of what breaks one of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final, TypeVar

from py_core.grammar.expressions import GrammarError
from py_core.grammar.schema.document import FALSE, NEVER, Conj, Document, Node, both
from py_core.grammar.schema.formats import UNKEPT
from py_core.grammar.schema.numbers import ALL_NUMBERS, Numbers, common_numbers, exact
from py_core.grammar.schema.shapes import (
    ALL_ARRAYS,
    ALL_OBJECTS,
    ANY,
    NONE,
    Arrays,
    Contained,
    Form,
    Objects,
    Rest,
    Some,
    form_of,
    or_others,
    union,
)
from py_core.grammar.schema.strings import (
    ALL_STRINGS,
    Pattern,
    Strings,
    common_strings,
    matches,
    no_strings,
    pattern_of,
    pattern_of_format,
)

_MOST_DEPTH = 60
_MOST_PIECES = 1000
_LONGEST_PATTERN = 10_000
_TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")
_NUMBER_WORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRING_WORDS = ("minLength", "maxLength", "pattern", "format")
_ARRAY_WORDS = (
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "unevaluatedItems",
)  # fmt: skip
_OBJECT_WORDS = (
    "properties", "patternProperties", "additionalProperties", "required", "propertyNames", "minProperties",
    "maxProperties", "unevaluatedProperties",
)  # fmt: skip
_APPLIED = (
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired",
    "dependentSchemas", "dependencies",
)  # fmt: skip
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_WORDS = frozenset((*_NUMBER_WORDS, *_STRING_WORDS, *_ARRAY_WORDS, *_OBJECT_WORDS, *_APPLIED, "enum", "const"))
_BY_TYPE = {
    "null": Form(True, (), (), (), (), ()),
    "boolean": Form(False, (True, False), (), (), (), ()),
    "number": form_of(ALL_NUMBERS),
    "integer": form_of(Numbers(whole=True)),
    "string": form_of(ALL_STRINGS),
    "array": form_of(ALL_ARRAYS),
    "object": form_of(ALL_OBJECTS),
}

P = TypeVar("P")


class Reader:
    """The forms of the schemas of a document."""

    def __init__(self, document: Document) -> None:
        self.document: Final = document
        self._forms: dict[Node, Form] = {}
        self._conjs: dict[Conj, Form] = {}
        self._void: dict[Conj, bool] = {}
        self._running: set[Node] = set()
        self._depth = 0
        self._made: list[Node] = []

    # --- forms

    def form(self, conj: Conj) -> Form:
        """The values that all these schemas allow."""
        if len(conj) < 2:
            return self._node_form(conj[0]) if conj else ANY
        found = self._conjs.get(conj)
        if found is None:
            found = ANY
            for node in conj:
                found = self.common(found, self._node_form(node))
            self._conjs[conj] = found
        return found

    def void(self, conj: Conj) -> bool:
        """True if certainly no value is allowed by all these schemas."""
        if conj == NEVER:
            return True
        found = self._void.get(conj)
        if found is None:
            if self._depth > _MOST_DEPTH or not conj:
                return False
            self._void[conj] = False  # while it is looked at: what needs itself
            self._depth += 1
            try:
                found = self.form(conj).is_empty()
            finally:
                self._depth -= 1
            self._void[conj] = found
        return found

    def common(self, one: Form, other: Form) -> Form:
        """The values in both."""
        if one is ANY or other is ANY:
            return other if one is ANY else one
        found = Form(
            one.null and other.null,
            tuple(value for value in one.booleans if value in other.booleans),
            self._product(one.numbers, other.numbers, ALL_NUMBERS, common_numbers),
            self._product(one.strings, other.strings, ALL_STRINGS, self._common_strings),
            self._product(one.arrays, other.arrays, ALL_ARRAYS, self._common_arrays),
            self._product(one.objects, other.objects, ALL_OBJECTS, self._common_objects),
        )
        if found.size() > _MOST_PIECES:
            raise GrammarError("the schema has too many alternatives")
        return found

    def _product(
        self, one: tuple[P, ...], other: tuple[P, ...], everything: P, common: Callable[[P, P], P | None]
    ) -> tuple[P, ...]:
        if not one or not other:
            return ()
        if one[0] is everything or other[0] is everything:
            return other if one[0] is everything else one
        self.document.step(len(one) * len(other))
        found: dict[object, P] = {}
        for first in one:
            for second in other:
                piece = common(first, second)
                if piece is not None:
                    found[piece.key() if isinstance(piece, Objects) else piece] = piece
        return tuple(found.values())

    def _common_strings(self, one: Strings, other: Strings) -> Strings | None:
        found = common_strings(one, other)
        if found is None or found in (one, other):
            return found
        try:
            return None if no_strings(found) else found
        except GrammarError:  # too large: what writes it says so
            return found

    def _common_arrays(self, one: Arrays, other: Arrays) -> Arrays | None:
        first = []
        ends = [end for end in (one.most, other.most) if end is not None]
        for at in range(max(len(one.first), len(other.first))):
            item = self._merged(self.item(one, at), self.item(other, at))
            if item == NEVER:
                ends.append(at)
                break
            first.append(item)
        rest = self._merged(one.rest, other.rest)
        if rest == NEVER:
            ends.append(len(first))
        least, most = max(one.least, other.least), min(ends, default=None)
        if most is not None and least > most:
            return None
        return Arrays(
            tuple(first), rest, least, most, one.unique or other.unique,
            tuple(dict.fromkeys(one.contained + other.contained)),
        )  # fmt: skip

    def _merged(self, one: Conj, other: Conj) -> Conj:
        """The schemas of both; NEVER if they certainly allow nothing."""
        found = both(one, other)
        if found is one or found is other:
            return found
        self.document.step()
        return NEVER if self.void(found) else found

    def _common_objects(self, one: Objects, other: Objects) -> Objects | None:
        self.document.step((len(one.listed) + len(other.listed)) // 4)
        listed = {name: self._merged(conj, self.property(other, name)) for name, conj in one.listed.items()}
        for name, conj in other.listed.items():
            if name not in listed:
                listed[name] = self._merged(self.property(one, name), conj)
        required = tuple(dict.fromkeys(one.required + other.required))
        ends = [end for end in (one.most, other.most) if end is not None]
        found = Objects(
            listed,
            required,
            tuple(dict.fromkeys(one.patterned + other.patterned)),
            tuple(dict.fromkeys(one.rests + other.rests)),
            both(one.names, other.names),
            max(one.least, other.least),
            min(ends, default=None),
            tuple(dict.fromkeys(one.some + other.some)),
            one.path or other.path,
        )
        return found if self._possible(found) else None

    def _possible(self, objects: Objects) -> bool:
        """False if there is certainly no such object."""
        if any(objects.listed[name] == NEVER for name in objects.required):
            return False
        if objects.names and not all(self.named(objects, name) for name in objects.required):
            return False
        if objects.most is not None and max(objects.least, len(objects.required)) > objects.most:
            return False
        if objects.least and self.closed(objects):
            possible = [name for name, conj in objects.listed.items() if conj != NEVER and self.named(objects, name)]
            if len(possible) < objects.least:
                return False
        return all(self.some_possible(objects, some) for some in objects.some)

    def some_possible(self, objects: Objects, some: Some) -> bool:
        """True if there may be a property of the kind that `some` asks for."""
        return not self.closed(objects) or any(True for _ in self.some_listed(objects, some))

    def some_listed(self, objects: Objects, some: Some) -> Iterable[tuple[str, Conj]]:
        """The listed properties that may be the one that is asked for, and what then holds of them."""
        for name, conj in objects.listed.items():
            if conj != NEVER and self.is_some(some, name) and self.named(objects, name):
                found = self._merged(conj, some.values)
                if found != NEVER:
                    yield name, found

    def is_some(self, some: Some, name: str) -> bool:
        return (
            name not in some.without
            and (some.pattern is None or matches(some.pattern, name))
            and not any(pattern is None or matches(pattern, name) for pattern in some.others)
            and (not some.names or any(strings.has(name) for strings in self.form(some.names).strings))
        )

    def closed(self, objects: Objects) -> bool:
        """True if no property is allowed that is not listed."""
        if any(pattern is None and conj == NEVER for pattern, conj in objects.patterned):
            return True
        for rest in objects.rests:
            if rest.values == NEVER and all(
                any(pattern == wanted and conj == NEVER for wanted, conj in objects.patterned)
                for pattern in rest.patterns
            ):
                return True
        return bool(objects.names) and not self.form(objects.names).strings

    def named(self, objects: Objects, name: str) -> bool:
        """True if a property may have a name, as far as `propertyNames` say."""
        return not objects.names or any(strings.has(name) for strings in self.form(objects.names).strings)

    def property(self, objects: Objects, name: str) -> Conj:
        """The rules for the value of a property."""
        listed = objects.listed.get(name)
        if listed is not None:
            return listed
        found: Conj = ()
        for pattern, conj in objects.patterned:
            if pattern is None or matches(pattern, name):
                found = both(found, conj)
        for rest in objects.rests:
            if not any(pattern is None or matches(pattern, name) for pattern in rest.patterns):
                found = both(found, rest.values)
        return found

    def item(self, arrays: Arrays, at: int) -> Conj:
        """The rules for an item."""
        return arrays.first[at] if at < len(arrays.first) else arrays.rest

    def _node_form(self, node: Node) -> Form:
        found = self._forms.get(node)
        if found is not None:
            return found
        if node is FALSE:
            return NONE
        if node.schema is True:
            return ANY
        if node in self._running:
            raise GrammarError(f"{node.path}: the schema refers to itself without an end")
        if self._depth > _MOST_DEPTH:
            raise GrammarError(f"{node.path}: nested too deeply")
        self._running.add(node)
        self._depth += 1
        try:
            found = self._opposite(node) if node.negative else self._read(node)
        finally:
            self._depth -= 1
            self._running.discard(node)
        self._forms[node] = found
        return found

    def _child(self, node: Node, *parts: str | int) -> Conj:
        return self.document.conj(self.document.child(node, *parts))

    def _not_child(self, node: Node, *parts: str | int) -> Conj:
        return self._not(self.document.child(node, *parts))

    def _not(self, node: Node) -> Conj:
        return self.document.conj(self.document.opposite(node))

    # --- values of keywords

    def _wrong(self, node: Node, word: str, wanted: str) -> GrammarError:
        return GrammarError(f"{node.path}/{word}: {wanted} is expected")

    def _count(self, node: Node, word: str) -> int | None:
        value = node.schema.get(word)
        if value is None and word not in node.schema:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0 or value < 0:
            raise self._wrong(node, word, "a whole number")
        return int(value)

    def _number(self, node: Node, word: str) -> Fraction | None:
        value = node.schema.get(word)
        if value is None and word not in node.schema:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(node, word, "a number")
        return exact(value)

    def _dict(self, node: Node, word: str) -> dict[str, Any]:
        value = node.schema.get(word, {})
        if not isinstance(value, dict):
            raise self._wrong(node, word, "an object")
        return value

    def _list(self, node: Node, word: str) -> list[Any]:
        value = node.schema.get(word, [])
        if not isinstance(value, list):
            raise self._wrong(node, word, "a list")
        return value

    def _names(self, node: Node, word: str) -> tuple[str, ...]:
        value = self._list(node, word)
        if not all(isinstance(name, str) for name in value):
            raise self._wrong(node, word, "a list of names")
        return tuple(dict.fromkeys(value))

    def _types(self, node: Node) -> frozenset[str] | None:
        value = node.schema.get("type")
        if value is None and "type" not in node.schema:
            return None
        types = [value] if isinstance(value, str) else value
        if not isinstance(types, list) or not types or not all(kind in _TYPES for kind in types):
            raise GrammarError(f"{node.path}/type: not supported, the types are {', '.join(_TYPES)}")
        return frozenset(types)

    # --- what is allowed

    def _read(self, node: Node) -> Form:
        schema = node.schema
        if self.document.old and "$ref" in schema:
            return self._applied(node, "$ref", ANY)
        if _WORDS.isdisjoint(schema):
            kind = schema.get("type")
            return _BY_TYPE[kind] if isinstance(kind, str) and kind in _BY_TYPE else self._own(node)
        own = self._own(node)
        form, own_is_in = ANY, False
        listed = "properties" in schema
        for word in schema:
            if not own_is_in and (word == "properties" if listed else word in _OBJECT_WORDS):
                form, own_is_in = self.common(form, own), True
            elif word in _APPLIED:
                try:
                    form = self.common(form, self._applied(node, word, own))
                except GrammarError:
                    if word not in self.document.allow:
                        raise
        return form if own_is_in else self.common(form, own)

    def _own(self, node: Node) -> Form:
        """The form of the keywords that look at the value itself."""
        schema = node.schema
        types = self._types(node)
        words = schema.keys()
        numbers, strings, arrays, objects = ALL_NUMBERS, ALL_STRINGS, ALL_ARRAYS, ALL_OBJECTS
        found: Form = ANY
        one: Numbers | None = numbers
        text: Strings | None = strings
        if types is None or "number" in types or "integer" in types:
            if any(word in words for word in _NUMBER_WORDS):
                one = self._numbers(node)
            if types is not None and "number" not in types:
                one = common_numbers(one, Numbers(whole=True)) if one else None
        if (types is None or "string" in types) and any(word in words for word in _STRING_WORDS):
            text = self._strings(node)
        if (types is None or "array" in types) and any(word in words for word in _ARRAY_WORDS):
            arrays = self._arrays(node)
        if (types is None or "object" in types) and any(word in words for word in _OBJECT_WORDS):
            objects = self._objects(node)
        fits = arrays.most is None or arrays.least <= arrays.most
        if types is not None or one is not numbers or text is not strings or arrays is not ALL_ARRAYS or \
                objects is not ALL_OBJECTS:  # fmt: skip
            found = Form(
                types is None or "null" in types,
                (True, False) if types is None or "boolean" in types else (),
                (one,) if one and (types is None or "number" in types or "integer" in types) else (),
                (text,) if text and (types is None or "string" in types) else (),
                (arrays,) if fits and (types is None or "array" in types) else (),
                (objects,) if (types is None or "object" in types) and self._possible(objects) else (),
            )
        if "enum" in words:
            found = self.common(found, self._values(node, self._list(node, "enum"), "enum"))
        if "const" in words:
            found = self.common(found, self._values(node, [schema["const"]], "const"))
        return found

    def _numbers(self, node: Node) -> Numbers | None:
        least, most = self._number(node, "minimum"), self._number(node, "maximum")
        least_open = most_open = False
        for word in ("exclusiveMinimum", "exclusiveMaximum"):
            value = node.schema.get(word)
            if isinstance(value, bool):  # draft 4
                if word == "exclusiveMinimum":
                    least_open = value
                else:
                    most_open = value
            elif value is not None:
                bound = self._number(node, word)
                assert bound is not None
                if word == "exclusiveMinimum" and (least is None or bound >= least):
                    least, least_open = bound, True
                elif word == "exclusiveMaximum" and (most is None or bound <= most):
                    most, most_open = bound, True
        multiple = self._number(node, "multipleOf")
        if multiple is not None and multiple <= 0:
            raise self._wrong(node, "multipleOf", "a number above 0")
        path = node.path
        for word in _NUMBER_WORDS:
            if word in node.schema:
                path = f"{node.path}/{word}"
        found = Numbers(None, least, least_open, most, most_open, multiple, path=path)
        return common_numbers(found, Numbers())

    def _strings(self, node: Node) -> Strings | None:
        least, most = self._count(node, "minLength") or 0, self._count(node, "maxLength")
        patterns = tuple(
            pattern
            for word in ("pattern", "format")
            if word in node.schema and (pattern := self._pattern(node, word)) is not None
        )
        if not least and most is None and not patterns:
            return ALL_STRINGS
        return None if most is not None and least > most else Strings(least, most, patterns)

    def _pattern(self, node: Node, word: str) -> Pattern | None:
        """The pattern of `pattern` or `format`; None if that says nothing."""
        source = node.schema[word]
        if not isinstance(source, str):
            raise self._wrong(node, word, "a string")
        if word == "format":
            if source in UNKEPT:
                self.document.refuse(f"{node.path}/format", f"{source} is not supported")
                return None
            return pattern_of_format(source, f"{node.path}/format")
        return self._source(source, f"{node.path}/{word}")

    def _source(self, source: str, path: str) -> Pattern | None:
        self.document.step(1 + len(source) // 20)
        if len(source) > _LONGEST_PATTERN:
            raise GrammarError(f"{path}: longer than {_LONGEST_PATTERN:,} characters")
        try:
            return pattern_of(source, path)
        except GrammarError as error:
            self.document.refuse(path, str(error))
            return None

    def _arrays(self, node: Node) -> Arrays:
        schema = node.schema
        first: tuple[Conj, ...] = ()
        rest: Conj = ()
        prefix = "items" if isinstance(schema.get("items"), list) else "prefixItems"
        if prefix in schema:
            first = tuple(self._child(node, prefix, at) for at in range(len(self._list(node, prefix))))
        if prefix == "items":
            if "additionalItems" in schema:
                rest = self._child(node, "additionalItems")
        elif "items" in schema:
            rest = self._child(node, "items")
        least, most = self._count(node, "minItems") or 0, self._count(node, "maxItems")
        for at, conj in enumerate((*first, rest)):
            if conj == NEVER:
                most = at if most is None else min(at, most)
        unique = schema.get("uniqueItems")
        if unique is not None and not isinstance(unique, bool):
            raise self._wrong(node, "uniqueItems", "a boolean")
        contained: tuple[Contained, ...] = ()
        if "contains" in schema:
            few = self._count(node, "minContains")
            few = 1 if few is None else few
            many = self._count(node, "maxContains")
            if few or many is not None:
                contained = (Contained(self._child(node, "contains"), few, many, f"{node.path}/contains"),)
        found = Arrays(first, rest, least, most, f"{node.path}/uniqueItems" if unique else "", contained)
        if "unevaluatedItems" in schema and schema["unevaluatedItems"] is not True:
            evaluated = self._evaluated_items(node, set())
            if evaluated is None:
                self.document.refuse(f"{node.path}/unevaluatedItems")
            elif evaluated >= 0:
                others = Arrays(((),) * evaluated, self._child(node, "unevaluatedItems"))
                found = self._common_arrays(found, others) or Arrays(least=1, most=0)
        return found

    def _evaluated_items(self, node: Node, seen: set[Node]) -> int | None:
        """How many first items are looked at, -1 if all; None if that depends on the value."""
        schema = node.schema
        if not isinstance(schema, dict) or node in seen:
            return 0
        seen.add(node)
        if any(word in schema for word in ("contains", "anyOf", "oneOf", "if", "not", "dependentSchemas")):
            return None
        if "items" in schema and not isinstance(schema["items"], list):
            return -1
        if ("additionalItems" in schema and "items" in schema) or (len(seen) > 1 and "unevaluatedItems" in schema):
            return -1
        counts = [len(self._list(node, "prefixItems" if "prefixItems" in schema else "items"))]
        for part in self._parts(node):
            count = self._evaluated_items(part, seen)
            if count is None or count < 0:
                return count
            counts.append(count)
        return max(counts)

    def _parts(self, node: Node) -> list[Node]:
        """The schemas that hold of the same value."""
        found = [self.document.target(node, word) for word in _REFERENCES if word in node.schema]
        found.extend(self.document.child(node, "allOf", at) for at in range(len(self._list(node, "allOf"))))
        return found

    def _evaluated(self, node: Node, seen: set[Node]) -> tuple[list[str], set[Pattern | None]] | None:
        """The names and patterns of properties that are looked at; None if they depend on the value."""
        schema = node.schema
        if not isinstance(schema, dict) or node in seen:
            return [], set()
        seen.add(node)
        if any(word in schema for word in ("anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies")):
            return None
        names = list(self._dict(node, "properties"))
        patterns = {self._source(source, node.path) for source in self._dict(node, "patternProperties")}
        if "additionalProperties" in schema or (len(seen) > 1 and "unevaluatedProperties" in schema):
            patterns.add(None)
        for part in self._parts(node):
            found = self._evaluated(part, seen)
            if found is None:
                return None
            names += found[0]
            patterns |= found[1]
        return names, patterns

    def _objects(self, node: Node) -> Objects:
        schema = node.schema
        properties = self._dict(node, "properties")
        self.document.step(len(properties) // 4)
        patterned = tuple(
            (self._source(source, f"{node.path}/patternProperties/{source}"),
             self._child(node, "patternProperties", source))
            for source in self._dict(node, "patternProperties")
        )  # fmt: skip
        rests: tuple[Rest, ...] = ()
        if "additionalProperties" in schema:
            others = self._child(node, "additionalProperties")
            if others:
                rests = (Rest(frozenset(pattern for pattern, _ in patterned), others),)
        listed = {name: self._child(node, "properties", name) for name in properties}
        patterned = tuple((pattern, conj) for pattern, conj in patterned if conj)
        if patterned:
            for name, conj in listed.items():
                for pattern, values in patterned:
                    if pattern is None or matches(pattern, name):
                        conj = self._merged(conj, values)
                listed[name] = conj
        names: Conj = ()
        if "propertyNames" in schema:
            names = self._child(node, "propertyNames")
        least, most = self._count(node, "minProperties") or 0, self._count(node, "maxProperties")
        required = self._names(node, "required")
        found = Objects(listed, (), patterned, rests, names, least, most, path=node.path)
        if any(name not in listed for name in required):
            listed |= {name: self.property(found, name) for name in required if name not in listed}
        found = Objects(listed, required, patterned, rests, names, least, most, path=node.path)
        if "unevaluatedProperties" in schema and schema["unevaluatedProperties"] is not True:
            evaluated = self._evaluated(node, set())
            if evaluated is None:
                self.document.refuse(f"{node.path}/unevaluatedProperties")
            else:
                rest = Rest(frozenset(evaluated[1]), self._child(node, "unevaluatedProperties"))
                seen = Objects(dict.fromkeys(evaluated[0], ()), rests=(rest,))
                found = self._common_objects(found, seen) or Objects(least=1, most=0)
        return found

    def _values(self, node: Node, values: list[Any], word: str) -> Form:
        """The form of listed values."""
        self.document.step(len(values) // 8)
        numbers: list[Fraction] = []
        strings: list[str] = []
        booleans: list[bool] = []
        null = False
        pieces: list[Arrays | Objects] = []
        for at, value in enumerate(values):
            if isinstance(value, str):
                strings.append(value)
            elif isinstance(value, bool):
                booleans.append(value)
            elif value is None:
                null = True
            elif isinstance(value, int | float):
                numbers.append(exact(value))
            else:
                path = f"{node.path}/{word}" if word == "const" else f"{node.path}/{word}/{at}"
                pieces.append(self._constant(node, value, path))
                if len(pieces) > _MOST_PIECES:
                    raise GrammarError(f"{node.path}/{word}: too many arrays and objects")
        return Form(
            null,
            tuple(dict.fromkeys(booleans)),
            (Numbers(values=tuple(dict.fromkeys(numbers))),) if numbers else (),
            (Strings(values=tuple(dict.fromkeys(strings))),) if strings else (),
            tuple(piece for piece in pieces if isinstance(piece, Arrays)),
            tuple(piece for piece in pieces if isinstance(piece, Objects)),
        )

    def _equal(self, node: Node, value: Any, path: str) -> Conj:
        """The schema of one value."""
        made = self.document.made({"const": value}, node, path)
        self._made.append(made)
        return (made,)

    def _constant(self, node: Node, value: list[Any] | dict[str, Any], path: str) -> Arrays | Objects:
        self.document.step(len(value))
        if isinstance(value, list):
            items = tuple(self._equal(node, item, path) for item in value)
            return Arrays(items, NEVER, len(items), len(items))
        listed = {name: self._equal(node, item, path) for name, item in value.items()}
        return Objects(listed, tuple(listed), rests=(Rest(frozenset(), NEVER),), path=path)

    # --- schemas of the same value

    def _applied(self, node: Node, word: str, own: Form) -> Form:
        document = self.document
        if word in _REFERENCES:
            return self._node_form(document.target(node, word))
        if word == "not":
            return self.form(self._not_child(node, "not"))
        if word == "if":
            return self._if(node)
        if word in ("dependentRequired", "dependentSchemas", "dependencies"):
            form = ANY
            for name in self._dict(node, word):
                form = self.common(form, self._dependent(node, word, name))
            return form
        branches = self._list(node, word)
        if word == "allOf":
            form = ANY
            for at in range(len(branches)):
                form = self.common(form, self._node_form(document.child(node, word, at)))
            return form
        forms = [self._node_form(document.child(node, word, at)) for at in range(len(branches))]
        if word == "oneOf":
            forms = self._exclusive(node, forms, own)
        return self._either(forms)

    def _either(self, forms: Iterable[Form]) -> Form:
        every = list(forms)
        self.document.step(sum(form.size() for form in every))
        found = union(*every)
        if found.size() > _MOST_PIECES:
            raise GrammarError("the schema has too many alternatives")
        return found

    def _exclusive(self, node: Node, forms: list[Form], own: Form) -> list[Form]:
        """The forms of `oneOf`, each without the others with which it shares values."""
        within = [self.common(own, form) for form in forms]
        if len(forms) > 2 and self._told_apart(within):
            return forms
        shared: list[set[int]] = [set() for _ in forms]
        for second in range(len(forms)):
            for first in range(second):
                if not self.common(within[first], within[second]).is_empty():
                    shared[first].add(second)
                    shared[second].add(first)
        found = []
        for at, others in enumerate(shared):
            form = within[at] if others else forms[at]
            for other in sorted(others):
                if form.is_empty():
                    break
                try:
                    form = self.common(form, self.form(self._not_child(node, "oneOf", other)))
                except GrammarError as error:
                    pair = f"{min(at, other)} and {max(at, other)}"
                    raise GrammarError(f"{node.path}/oneOf: not supported, {pair} may both hold ({error})") from None
            found.append(form)
        return found

    def _told_apart(self, forms: list[Form]) -> bool:
        """True if all are objects that a required property with listed strings tells apart."""
        if not all(len(form.objects) == 1 and form.size() == 2 and not form.null for form in forms):
            return False
        if any(form.booleans for form in forms):
            return False
        every = [form.objects[0] for form in forms]
        for name in every[0].required:
            seen: set[str] = set()
            for objects in every:
                values = self.form(objects.listed[name]) if name in objects.required else ANY
                strings = values.strings
                if values.size() != 2 or values.null or values.booleans or not strings or strings[0].values is None:
                    break
                if not seen.isdisjoint(strings[0].values):
                    break
                seen.update(strings[0].values)
            else:
                return True
        return False

    def _if(self, node: Node) -> Form:
        if "then" not in node.schema and "else" not in node.schema:
            return ANY
        condition, opposite = self._child(node, "if"), self._not_child(node, "if")
        then = self.form(self._child(node, "then")) if "then" in node.schema else ANY
        otherwise = self.form(self._child(node, "else")) if "else" in node.schema else ANY
        return union(self.common(self.form(condition), then), self.common(self.form(opposite), otherwise))

    def _dependent(self, node: Node, word: str, name: str) -> Form:
        absent = or_others(Objects({name: NEVER}), Objects)
        value = node.schema[word][name]
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            if not all(isinstance(wanted, str) for wanted in value):
                raise self._wrong(node, word, "a list of names")
            names = tuple(dict.fromkeys((name, *value)))
            return union(absent, form_of(Objects(dict.fromkeys(names, ()), names, path=node.path)))
        present = form_of(Objects({name: ()}, (name,), path=node.path))
        return union(absent, self.common(present, self.form(self._child(node, word, name))))

    # --- what is not allowed

    def _opposite(self, node: Node) -> Form:
        schema = node.schema
        if self.document.old and "$ref" in schema:
            return self._not_keyword(node, "$ref")
        found = NONE
        for word in schema:
            try:
                found = union(found, self._not_keyword(node, word))
            except GrammarError:
                if word not in self.document.allow:
                    raise
        if found.size() > _MOST_PIECES:
            raise GrammarError(f"{node.path}: too many alternatives")
        return found

    def _not_keyword(self, node: Node, word: str) -> Form:
        """The values that break one keyword."""
        path = f"{node.path}/{word}"
        if word == "type":
            return self._other_types(node)
        if word in ("enum", "const"):
            values = [node.schema[word]] if word == "const" else self._list(node, word)
            return self._other_values(node, values, path)
        if word in _NUMBER_WORDS:
            return self._not_number(node, word)
        if word in _STRING_WORDS:
            return self._not_string(node, word)
        if word in _ARRAY_WORDS:
            return self._not_array(node, word)
        if word in _OBJECT_WORDS:
            return self._not_object(node, word)
        return self._not_applied(node, word) if word in _APPLIED else NONE

    def _other_types(self, node: Node) -> Form:
        types = self._types(node)
        assert types is not None
        numbers: tuple[Numbers, ...] = (ALL_NUMBERS,)
        if "number" in types:
            numbers = ()
        elif "integer" in types:
            numbers = (Numbers(whole=False, path=f"{node.path}/type"),)
        return Form(
            "null" not in types,
            () if "boolean" in types else (True, False),
            numbers,
            () if "string" in types else (ALL_STRINGS,),
            () if "array" in types else (ALL_ARRAYS,),
            () if "object" in types else (ALL_OBJECTS,),
        )

    def _other_values(self, node: Node, values: list[Any], path: str) -> Form:
        numbers = frozenset(exact(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool))
        strings = frozenset(value for value in values if isinstance(value, str))
        form = Form(
            None not in values,
            tuple(known for known in (True, False) if not any(value is known for value in values)),
            (Numbers(without=numbers, path=path),) if numbers else (ALL_NUMBERS,),
            (Strings(without=strings),) if strings else (ALL_STRINGS,),
        )
        for value in values:
            if isinstance(value, list):
                form = self.common(form, self._other_array(node, value, path))
            elif isinstance(value, dict):
                form = self.common(form, self._other_object(node, value, path))
        return form

    def _other_array(self, node: Node, value: list[Any], path: str) -> Form:
        form = union(or_others(None, Arrays), form_of(Arrays(least=len(value) + 1)))
        if value:
            form = union(form, form_of(Arrays(most=len(value) - 1)))
        for at, item in enumerate(value):
            other = self._not(self._equal(node, item, path)[0])
            form = union(form, form_of(Arrays(((),) * at + (other,), least=at + 1)))
        return form

    def _other_object(self, node: Node, value: dict[str, Any], path: str) -> Form:
        form = or_others(None, Objects)
        some = Some(frozenset(value), None, frozenset(), (), (), path)
        form = union(form, form_of(Objects(dict.fromkeys(value, ()), some=(some,), path=path)))
        for name, item in value.items():
            form = union(form, form_of(Objects({name: NEVER}, path=path)))
            other = self._not(self._equal(node, item, path)[0])
            form = union(form, form_of(Objects({name: other}, (name,), path=path)))
        return form

    def _not_number(self, node: Node, word: str) -> Form:
        path = f"{node.path}/{word}"
        value = node.schema[word]
        if isinstance(value, bool):
            return NONE
        bound = self._number(node, word)
        if word == "multipleOf":
            assert bound is not None
            return form_of(Numbers(no_multiples=(bound,), path=path))
        exclusive = word.startswith("exclusive") or node.schema.get(f"exclusiveM{word[1:]}") is True
        if "inimum" in word:
            return form_of(Numbers(most=bound, most_open=not exclusive, path=path))
        return form_of(Numbers(least=bound, least_open=not exclusive, path=path))

    def _not_string(self, node: Node, word: str) -> Form:
        if word in ("minLength", "maxLength"):
            count = self._count(node, word)
            assert count is not None
            if word == "maxLength":
                return form_of(Strings(least=count + 1))
            return form_of(Strings(most=count - 1)) if count else NONE
        pattern = self._pattern(node, word)
        return NONE if pattern is None else form_of(Strings(others=(pattern,)))

    def _not_array(self, node: Node, word: str) -> Form:
        schema = node.schema
        path = f"{node.path}/{word}"
        count = self._count(node, word) if word in ("minItems", "maxItems") else 0
        assert count is not None
        if word == "minItems":
            return form_of(Arrays(most=count - 1)) if count else NONE
        if word == "maxItems":
            return form_of(Arrays(least=count + 1))
        if word in ("items", "prefixItems") and isinstance(schema[word], list):
            found = NONE
            for at in range(len(schema[word])):
                other = self._not_child(node, word, at)
                if other != NEVER:
                    found = union(found, form_of(Arrays(((),) * at + (other,), least=at + 1)))
            return found
        if word in ("items", "additionalItems"):
            if word == "additionalItems" and not isinstance(schema.get("items"), list):
                return NONE
            other = self._not_child(node, word)
            first = len(schema.get("items" if word == "additionalItems" else "prefixItems", ()))
            if other == NEVER:
                return NONE
            if not other:  # no further item is allowed
                return form_of(Arrays(least=first + 1))
            if first:
                raise GrammarError(f"{path}: not supported below not")
            return form_of(Arrays(contained=(Contained(other, 1, None, path),)))
        if word == "uniqueItems" and schema[word] is not True:
            return NONE
        if word == "contains":
            few, many = self._count(node, "minContains"), self._count(node, "maxContains")
            few = 1 if few is None else few
            conj = self._child(node, "contains")
            found = NONE
            if few == 1:
                found = form_of(Arrays(rest=self._not_child(node, "contains")))
            elif few:
                found = form_of(Arrays(contained=(Contained(conj, 0, few - 1, path),)))
            if many is not None:
                found = union(found, form_of(Arrays(contained=(Contained(conj, many + 1, None, path),))))
            return found
        raise GrammarError(f"{path}: not supported below not")

    def _not_object(self, node: Node, word: str) -> Form:
        schema = node.schema
        path = f"{node.path}/{word}"
        if word in ("minProperties", "maxProperties"):
            count = self._count(node, word)
            assert count is not None
            if word == "maxProperties":
                return form_of(Objects(least=count + 1, path=path))
            return form_of(Objects(most=count - 1, path=path)) if count else NONE
        found = NONE
        if word == "required":
            for name in self._names(node, word):
                found = union(found, form_of(Objects({name: NEVER}, path=path)))
            return found
        if word == "properties":
            for name in self._dict(node, word):
                other = self._not_child(node, word, name)
                if other != NEVER:
                    found = union(found, form_of(Objects({name: other}, (name,), path=path)))
            return found
        nothing: frozenset[Pattern | None] = frozenset()
        if word == "patternProperties":
            for source in self._dict(node, word):
                other = self._not_child(node, word, source)
                if other != NEVER:
                    some = Some(frozenset(), self._source(source, path), nothing, other, (), path)
                    found = union(found, form_of(Objects(some=(some,), path=path)))
            return found
        if word == "propertyNames":
            some = Some(frozenset(), None, nothing, (), self._not_child(node, word), path)
            return form_of(Objects(some=(some,), path=path))
        if word == "additionalProperties":
            other = self._not_child(node, word)
            if other == NEVER:
                return NONE
            names = frozenset(self._dict(node, "properties"))
            patterns = frozenset(self._source(source, path) for source in self._dict(node, "patternProperties"))
            if None in patterns:
                return NONE
            some = Some(names, None, patterns, other, (), path)
            return form_of(Objects(dict.fromkeys(self._dict(node, "properties"), ()), some=(some,), path=path))
        if schema[word] is True:
            return NONE
        raise GrammarError(f"{path}: not supported below not")

    def _not_applied(self, node: Node, word: str) -> Form:
        document = self.document
        if word in _REFERENCES:
            return self.form(self._not(document.target(node, word)))
        if word == "not":
            return self.form(self._child(node, "not"))
        if word == "if":
            found = NONE
            if "then" in node.schema:
                both_of = self.common(self.form(self._child(node, "if")), self.form(self._not_child(node, "then")))
                found = union(found, both_of)
            if "else" in node.schema:
                both_of = self.common(self.form(self._not_child(node, "if")), self.form(self._not_child(node, "else")))
                found = union(found, both_of)
            return found
        if word in ("dependentRequired", "dependentSchemas", "dependencies"):
            return self._either(self._not_dependent(node, word, name) for name in self._dict(node, word))
        count = len(self._list(node, word))
        opposites = [self.form(self._not_child(node, word, at)) for at in range(count)]
        if word == "allOf":
            return self._either(opposites)
        none = ANY
        for form in opposites:
            none = self.common(none, form)
        if word == "anyOf":
            return none
        forms = [self.form(self._child(node, word, at)) for at in range(count)]
        pairs = (self.common(forms[at], forms[before]) for at in range(count) for before in range(at))
        return union(none, self._either(pairs))

    def _not_dependent(self, node: Node, word: str, name: str) -> Form:
        present = form_of(Objects({name: ()}, (name,), path=node.path))
        value = node.schema[word][name]
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return self.common(present, self.form(self._not_child(node, word, name)))
        wanted = (other for other in value if other != name)
        return self._either(
            form_of(Objects({name: (), other: NEVER}, (name,), path=node.path)) for other in wanted
        )  # fmt: skip
