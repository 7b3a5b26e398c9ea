"""Functions with `@tool`: their schemas, and what calls of them give and refuse."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import jsonschema
import pytest

from app.tools import MOST_RESULT, Tool, ToolFailure, needs_in_words, tool, tools_by_name
from app.tools.model_tool import NotAToolError
from py_core.grammar.schema import schema_grammar
from py_core.tool_calls.definitions import ToolError


class Scale(Enum):
    celsius = "C"
    kelvin = "K"


@dataclass(frozen=True)
class Place:
    city: str
    country: str = "CH"


class Span(TypedDict):
    days: int
    hours: NotRequired[float]


@tool(hosts=["weather.example.com"], files=["/tmp/places"])
def weather(
    place: Place, span: Span, scale: Scale = Scale.celsius, form: Literal["short", "long"] = "short",
    also: list[Annotated[str, "a name"]] | None = None, factor: float = 1.5, *, extra: dict[str, int] | None = None,
    sure: bool = False, most: float = math.inf, either: int | str = 0, note: Optional[str] = "",  # noqa: UP045 - people write it
) -> str:  # fmt: skip
    """Tell the weather of
    a place.

    More for people.

    Args:
        place: where it is,
            and in which country
        span (Span): how long
        factor: by how much: exactly

    Returns:
        text: of the weather
    """
    return repr((place, span, scale, form, also, factor, extra, sure, either, note))


ALL = {
    "place": {"city": "Bern"}, "span": {"days": 2.0, "hours": 1}, "scale": "K", "form": "long", "also": ["Ulm"],
    "factor": 2, "extra": {"a": 1}, "sure": True, "either": "x", "note": None,
}  # fmt: skip


def test_name_description_and_schema_come_from_the_function() -> None:
    definition = weather.definition
    assert (definition.name, definition.description) == ("weather", "Tell the weather of a place.")
    place = {
        "type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
        "required": ["city"], "additionalProperties": False, "description": "where it is, and in which country",
    }  # fmt: skip
    span = {
        "type": "object", "properties": {"days": {"type": "integer"}, "hours": {"type": "number"}},
        "required": ["days"], "additionalProperties": False, "description": "how long",
    }  # fmt: skip
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "place": place,
            "span": span,
            "scale": {"enum": ["C", "K"], "default": "C"},
            "form": {"enum": ["short", "long"], "default": "short"},
            "also": {"type": "array", "items": {"type": "string", "description": "a name"}},
            "factor": {"type": "number", "default": 1.5, "description": "by how much: exactly"},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
            "sure": {"type": "boolean", "default": False},
            "most": {"type": "number"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 0},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": ""},
        },
        "required": ["place", "span"],
        "additionalProperties": False,
    }
    jsonschema.validate(ALL, dict(definition.parameters))
    schema_grammar(definition.parameters)  # a model's calls can be kept to it
    assert needs_in_words(weather.needs) == [
        "reach weather.example.com over the network", "read and write /tmp/places"
    ]  # fmt: skip


async def test_arguments_become_what_the_annotations_mean() -> None:
    expected = (Place("Bern"), {"days": 2, "hours": 1.0}, Scale.kelvin, "long", ["Ulm"], 2.0, {"a": 1}, True, "x", None)
    assert await weather.run(ALL) == repr(expected)
    given = {"place": {"city": "Ulm", "country": "DE"}, "span": {"days": 1}}
    assert await weather.run(given) == weather(Place("Ulm", "DE"), {"days": 1})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"place": {"city": 1}}, "The argument place.city must be a text, and is 1."),
        ({"place": {}}, "The argument place.city is missing."),
        ({"place": {"city": "x", "zip": 1}}, "There is no argument place.zip: there are city, country."),
        ({"span": {"days": True}}, "The argument span.days must be a whole number, and is True."),
        ({"scale": "F"}, "The argument scale must be one of 'C', 'K', and is 'F'."),
        ({"also": ["a", 2]}, "The argument also[1] must be a text, and is 2."),
        ({"also": "a"}, "The argument also must be a list, and is 'a'."),
        ({"factor": float("nan")}, "The argument factor must be a number, and is nan."),
        ({"sure": "true"}, "The argument sure must be true or false, and is 'true'."),
        ({"extra": {"a": "b"}}, "The argument extra.a must be a whole number, and is 'b'."),
        ({"town": "x"}, "There is no argument town: there are place, span, scale,"),
    ],
)
async def test_arguments_that_do_not_fit_are_a_sentence(given: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await weather.run({"place": {"city": "Bern"}, "span": {"days": 1}, **given})
    assert str(failed.value).startswith(sentence)


async def said_by(function: Callable[..., Any]) -> str:
    function.__doc__ = "Say something."
    return await tool(function).run({})


async def test_a_result_is_a_text() -> None:
    assert await said_by(lambda_named(lambda: "as it is")) == "as it is"
    assert await said_by(lambda_named(lambda: None)) == "Done."
    value = {"places": [Place("Zürich")], "scale": Scale.kelvin, "names": {"b", "a"}}
    expected = '{"places": [{"city": "Zürich", "country": "CH"}], "scale": "K", "names": ["a", "b"]}'
    assert await said_by(lambda_named(lambda: value)) == expected
    long = await said_by(lambda_named(lambda: "é" * (MOST_RESULT + 5)))
    assert long == "é" * MOST_RESULT + "\n(The result is longer: 5 more characters were left out.)"
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ToolFailure, match="neither a text nor JSON"):
        await said_by(lambda_named(lambda: circle))


def lambda_named(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = "say"
    return function


async def test_errors_of_the_function_are_their_last_line() -> None:
    @tool
    def divide(by: int) -> float:
        """Return one, divided."""
        if by == 1:
            raise ToolFailure("One is too easy.")
        if by == 2:
            raise SystemExit("end of all")
        if by == 3:
            raise StopIteration
        return 1 / by

    line = divide.function.__code__.co_firstlineno + 9
    for by, sentence in (
        (0, f"divide failed: ZeroDivisionError: division by zero (line {line})"),
        (1, "One is too easy."),
        (2, f"divide failed: SystemExit: end of all (line {line - 3})"),
        (3, "divide failed: RuntimeError: StopIteration()"),
    ):
        with pytest.raises(ToolFailure) as failed:
            await divide.run({"by": by})
        assert str(failed.value) == sentence


async def test_functions_may_be_async_and_others_block_nothing() -> None:
    begun, going = asyncio.Event(), asyncio.get_running_loop()

    @tool
    async def waits() -> str:
        """Wait for the other."""
        await begun.wait()
        return "waited"

    @tool
    def begins() -> str:
        """Let the other go on."""
        going.call_soon_threadsafe(begun.set)
        return asyncio.run_coroutine_threadsafe(waits.run({}), going).result(timeout=10)

    assert await begins.run({}) == "waited"


class Loop:
    """A type without a schema."""

    def method(self, city: str) -> str:
        """Say it."""
        return city


@dataclass
class Tree:
    branches: list[Tree]


def refused(**annotations: Any) -> Callable[..., Any]:
    def made(first: Any) -> None:
        """Do it."""

    made.__annotations__ = annotations
    return made


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (refused(first=Loop), "made: The parameter first has the type Loop, which has no JSON Schema: use str"),
        (refused(first=list[complex]), "made: The parameter first[] has the type complex, which has no"),
        (refused(first=dict[int, str]), "has no JSON Schema: the keys of an object are texts."),
        (
            refused(first=Tree),
            "The parameter first.branches[] has the type Tree, which has no JSON Schema: it contains",
        ),
        (refused(first=Literal[1.5]), "The choices of the parameter first must be texts or whole numbers, not 1.5."),
        (refused(first="Missing"), "The annotations of made cannot be read: name 'Missing' is not defined"),
        (refused(), "made: The parameter first has no type: give it one, such as first: str."),
        (Loop.method, "method: This is a method: a tool is a function outside of a class."),
        (lambda *all: None, "A call names its arguments, which the parameter all does not allow."),
        (Loop, "Loop: @tool belongs above `def`, and this is not a function."),
        (lambda_named(lambda: None), "say: There is no description: begin the docstring with what it does."),
    ],
)
def test_what_is_no_tool_is_refused_by_its_name(function: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(NotAToolError) as failed:
        tool(function)
    assert sentence in str(failed.value)


def test_names_are_those_that_models_can_write_and_each_is_there_once() -> None:
    with pytest.raises(ToolError, match="may have only letters of English"):
        tool(name="wéather")(weather.function)
    other: Tool = tool(name="rain")(weather.function)
    assert list(tools_by_name([weather, other])) == ["weather", "rain"]
    with pytest.raises(ToolError, match="Two tools are called rain"):
        tools_by_name([other, weather, other])
