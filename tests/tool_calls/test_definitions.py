"""Definitions of tools and choices, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest

from py_core.tool_calls.definitions import AUTO, ChoiceMode, ToolChoice, ToolError, choice_from, tools_from

WEATHER = {"name": "weather", "description": "It.", "parameters": {"type": "object", "properties": {"city": {}}}}


def test_tools_are_read_from_either_form() -> None:
    wrapped = {"type": "function", "function": WEATHER}
    (tool,) = tools_from([WEATHER])
    assert tools_from([wrapped]) == tools_from(json.dumps([wrapped])) == (tool,)
    assert tool.entry() == wrapped
    (bare,) = tools_from([{"name": "now"}])
    assert bare.parameters == {"type": "object", "properties": {}}
    assert tools_from([]) == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("[{", "not JSON: Expecting property name"),
        ([{1, 2}], "not JSON"),
        ({"name": "now"}, "must be a JSON list"),
        ([{"description": "x"}], "Tool 1 has no name"),
        ([WEATHER, "now"], "Tool 2 has no name"),
        ([{"name": "a b"}], "called 'a b', but its name"),
        ([{"name": "x" * 65}], "up to 64"),
        ([{"name": "zürich"}], "letters of English"),
        ([WEATHER, WEATHER], "Two tools are called weather"),
        ([{"name": "f", "description": 5}], "description of the tool f"),
        ([{"name": "f", "parameters": {"type": "dict"}}], "parameters of the tool f"),
        ([{"name": "f", "parameters": []}], "parameters of the tool f"),
        ([{"name": "f", "parameters": {"properties": ["a"]}}], "properties of the tool f"),
        ([{"name": f"f{number}"} for number in range(129)], "129 tools"),
        ("[" * 10_000, "nested too deeply"),
        ('[{"name": "f", "description": "' + "x" * (1 << 18) + '"}]', "262,178 characters"),
        ('[{"name": "f", "x": ' + "9" * 5000 + "}]", "not JSON"),
    ],
)
def test_bad_definitions_are_refused_with_a_sentence(data: Any, said: str) -> None:
    with pytest.raises(ToolError, match=said.replace("(", r"\(")) as error:
        tools_from(data)
    assert error.value.message.code.startswith("tools.")


def test_choices_are_read() -> None:
    tools = tools_from([WEATHER])
    assert choice_from(None, tools) == choice_from("auto", tools) == AUTO
    assert choice_from("none", []).mode is ChoiceMode.none
    named = ToolChoice(ChoiceMode.required, "weather")
    assert choice_from("weather", tools) == named
    assert choice_from({"type": "function", "function": {"name": "weather"}}, tools) == named
    assert choice_from("required", tools) == ToolChoice(ChoiceMode.required)
    for data, said in (
        ("rain", "No tool is called 'rain'"),
        ({"type": "x"}, "No tool is called None"),
        (5, "called 5"),
    ):
        with pytest.raises(ToolError, match=said):
            choice_from(data, tools)
    with pytest.raises(ToolError, match="there are no tools"):
        choice_from("required", [])
