"""JSON Schemas of annotations, and the values that a call gives for them.

shape = shape_of(list[float], "prices")
shape.schema                        # {"type": "array", "items": {"type": "number"}}
shape.read([1, 2.5], "prices")      # [1.0, 2.5]
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from app.tools.model_tool import NotAToolError, ToolFailure
from py_core.display import shown

_LEAVES: dict[Any, tuple[str, str]] = {
    str: ("string", "a text"), bool: ("boolean", "true or false"), int: ("integer", "a whole number"),
    float: ("number", "a number"), type(None): ("null", "null"),
}  # fmt: skip
Read = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Shape:
    """read: turns a value of JSON into the value that the annotation means; gets the value's place, which names it in
    the ToolFailure that it raises."""

    schema: dict[str, Any]
    read: Read


def shape_of(annotation: Any, place: str) -> Shape:
    """Return the shape of an annotation. Raises NotAToolError if it has none. place: the name of the parameter."""
    return _shape(annotation, place, ())


def object_shape(properties: Mapping[str, Shape], required: Sequence[str], make: Callable[..., Any]) -> Shape:
    """Return the shape of an object with these properties and no others. make: gets the values by name."""
    schema: dict[str, Any] = {"type": "object", "properties": {name: one.schema for name, one in properties.items()}}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise _unfit(place, "an object", value)
        inside = f"{place}." if place else ""
        for name in value:
            if name not in properties:
                there = ", ".join(properties) or "none"
                raise ToolFailure(f"There is no argument {inside}{shown(name)[1:-1]}: there are {there}.")
        if lacking := [name for name in required if name not in value]:
            raise ToolFailure(f"The argument {inside}{lacking[0]} is missing.")
        return make(**{name: properties[name].read(one, f"{inside}{name}") for name, one in value.items()})

    return Shape(schema, read)


def _shape(annotation: Any, place: str, around: tuple[Any, ...]) -> Shape:
    """around: the classes whose fields lead here."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _LEAVES:
        return _leaf(annotation)
    if annotation is None:
        return _leaf(type(None))
    if annotation is Any or annotation is object:
        return Shape({}, lambda value, at: value)
    if origin is Annotated:
        return _described(_shape(inner[0], place, around), next((one for one in inner[1:] if isinstance(one, str)), ""))
    if origin in (Required, NotRequired):
        return _shape(inner[0], place, around)
    if origin is Literal:
        return _choice({one: one for one in inner}, place)
    if origin in (Union, types.UnionType):
        return _union([_shape(one, place, around) for one in inner])
    if annotation in (list, Sequence) or origin in (list, Sequence):
        return _list(_shape(inner[0], f"{place}[]", around) if inner else None, list)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return _list(_shape(inner[0], f"{place}[]", around), tuple)
    if annotation in (dict, Mapping) or origin in (dict, Mapping):
        if inner and inner[0] is not str:
            raise _refused(place, annotation, "the keys of an object are texts")
        return _mapping(_shape(inner[1], f"{place}{{}}", around) if inner else None)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice({one.value: one for one in annotation}, place)
    if is_typeddict(annotation) or (isinstance(annotation, type) and is_dataclass(annotation)):
        if annotation in around:
            raise _refused(place, annotation, "it contains itself")
        return _record(annotation, place, (*around, annotation))
    raise _refused(
        place, annotation, "use str, int, float, bool, Literal, an Enum, list, dict, or a dataclass of these"
    )


def _leaf(kind: Any) -> Shape:
    name, words = _LEAVES[kind]

    def read(value: Any, place: str) -> Any:
        if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():
            return int(value)
        if type(value) is not kind or kind is float:
            raise _unfit(place, words, value)
        return value

    return Shape({"type": name}, read)


def _choice(values: dict[Any, Any], place: str) -> Shape:
    """values: what JSON has, and what the function gets."""
    for value in values:
        if type(value) not in (str, int, bool, type(None)):
            raise NotAToolError(
                f"The choices of the parameter {place} must be texts or whole numbers, not {shown(value)}."
            )
    pairs = list(values.items())
    words = "one of " + ", ".join(shown(value) for value in values)

    def read(value: Any, at: str) -> Any:
        for told, meant in pairs:
            if type(told) is type(value) and told == value:
                return meant
        raise _unfit(at, words, value)

    return Shape({"enum": [told for told, _ in pairs]}, read)


def _union(shapes: Sequence[Shape]) -> Shape:
    def read(value: Any, place: str) -> Any:
        failures = list[ToolFailure]()
        for shape in shapes:
            try:
                return shape.read(value, place)
            except ToolFailure as failure:
                failures.append(failure)
        raise failures[0]

    return Shape({"anyOf": [shape.schema for shape in shapes]}, read)


def _list(items: Shape | None, make: Callable[[Any], Any]) -> Shape:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _unfit(place, "a list", value)
        return make(one if items is None else items.read(one, f"{place}[{at}]") for at, one in enumerate(value))

    return Shape({"type": "array"} | ({"items": items.schema} if items else {}), read)


def _mapping(values: Shape | None) -> Shape:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise _unfit(place, "an object", value)
        return {key: one if values is None else values.read(one, f"{place}.{key}") for key, one in value.items()}

    return Shape({"type": "object"} | ({"additionalProperties": values.schema} if values else {}), read)


def _record(kind: Any, place: str, around: tuple[Any, ...]) -> Shape:
    """A dataclass or a TypedDict."""
    hints = hints_of(kind, kind.__name__)
    if is_typeddict(kind):
        # __required_keys__ does not know what annotations say that are texts (`from __future__ import annotations`)
        marks = {name: get_origin(hint) for name, hint in hints.items()}
        required = [
            name for name, mark in marks.items()
            if mark is Required or (mark is not NotRequired and name in kind.__required_keys__)
        ]  # fmt: skip
    else:
        hints = {one.name: hints[one.name] for one in fields(kind) if one.init}
        needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
        required = [name for name in hints if name in needed]
    return object_shape({name: _shape(hint, f"{place}.{name}", around) for name, hint in hints.items()}, required, kind)


def hints_of(annotated: Any, name: str) -> dict[str, Any]:
    """Return the annotations of a function or class. Raises NotAToolError if one names what is not there."""
    try:
        return get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise NotAToolError(f"The annotations of {name} cannot be read: {error}.") from None


def _described(shape: Shape, description: str) -> Shape:
    return Shape({**shape.schema, "description": description}, shape.read) if description else shape


def _refused(place: str, annotation: Any, why: str) -> NotAToolError:
    name = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return NotAToolError(f"The parameter {place} has the type {name}, which has no JSON Schema: {why}.")


def _unfit(place: str, wanted: str, value: Any) -> ToolFailure:
    return ToolFailure(f"The argument {place or 'object'} must be {wanted}, and is {shown(value)}.")
