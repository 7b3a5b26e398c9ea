"""Definitions of tools and the choice among them, as OpenAI's API writes them.

Their form: {"type": "function", "function": {"name": ..., "description": ..., "parameters": a JSON Schema}}, or the
inner object alone. Benchmarks write types that JSON Schema does not have ("dict", "float", "tuple", "any"): whoever
reads such a file makes them JSON Schema first (tests/bench/tool_calls); here they are refused by the schema's grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from py_core.display import shown, why_not_json
from py_core.messages import UserError

MOST_TOOLS = 128
"""As many as OpenAI takes."""
MOST_CHARACTERS = 1 << 18
"""The longest text of all definitions: a model reads it before each answer."""
MOST_DEEP = 64
"""Brackets within each other, in definitions and in calls. In the page each takes of the browser's stack."""
_SAID = frozenset(["type", "enum", "description", "title", "default", "examples", "example"])
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FORM = '{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}'


class ToolError(UserError, ValueError):
    """Definitions of tools, or a choice, that cannot be used; the message says why."""


@dataclass(frozen=True)
class ToolDefinition:
    """A tool that a model may call. parameters: the JSON Schema of an object, whose properties are the arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def entry(self) -> dict[str, Any]:
        """Return the definition in OpenAI's form, which chat templates take."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """A call that a model has written. text: as it was written. id: nine letters and digits, as Mistral wants them,
    different for each call of a reader."""

    name: str
    arguments: dict[str, Any]
    text: str = ""
    id: str = ""

    def entry(self) -> dict[str, Any]:
        """Return {name, arguments}."""
        return {"name": self.name, "arguments": self.arguments}


class ChoiceMode(StrEnum):
    """auto: the model answers with text or calls. none: with text. required: with a call at least."""

    auto = "auto"
    none = "none"
    required = "required"


@dataclass(frozen=True)
class ToolChoice:
    """name: the only tool that may be called, which is then required."""

    mode: ChoiceMode = ChoiceMode.auto
    name: str = ""


AUTO = ToolChoice()


def tools_from(data: Any) -> tuple[ToolDefinition, ...]:
    """Read definitions: a list of them as `json.loads` gives it, or its JSON text. Raises ToolError."""
    try:
        text = data if isinstance(data, str) else json.dumps(data)
    except (TypeError, ValueError, RecursionError):
        raise ToolError("tools.no-json", "The tools are not JSON.") from None
    if len(text) > MOST_CHARACTERS:
        raise ToolError(
            "tools.long",
            "The definitions of the tools have {length} characters; a model reads at most {most}. Leave tools out.",
            length=f"{len(text):,}",
            most=f"{MOST_CHARACTERS:,}",
        )
    if depth_of(text) > MOST_DEEP:
        raise ToolError("tools.deep", "The definitions of the tools are nested too deeply.")
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError("tools.broken", "The tools are not JSON: {why}.", why=why_not_json(error)) from None
    if not isinstance(read, list):
        raise ToolError("tools.no-list", "The tools must be a JSON list of {form}.", form=_FORM)
    if len(read) > MOST_TOOLS:
        raise ToolError(
            "tools.many", "There are {count} tools, and at most {most} can be given.", count=len(read), most=MOST_TOOLS
        )
    tools = tuple(_tool(entry, number) for number, entry in enumerate(read, 1))
    check_names(tools)
    return tools


def check_names(tools: Sequence[ToolDefinition]) -> None:
    """Raises ToolError if two tools have the same name."""
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ToolError("tools.twice", "Two tools are called {name}: give each its own name.", name=twice)


def choice_from(data: Any, tools: Sequence[ToolDefinition]) -> ToolChoice:
    """Read a choice: "auto", "none", "required", the name of a tool, or {"type": "function", "function": {"name":
    ...}}; None is auto. Raises ToolError."""
    if data is None:
        return AUTO
    if isinstance(data, Mapping):
        function = data.get("function")
        data = function.get("name") if isinstance(function, Mapping) else data.get("name")
    elif data in list(ChoiceMode):
        if data == ChoiceMode.required and not tools:
            raise ToolError("tools.none", "A call is required, but there are no tools.")
        return ToolChoice(ChoiceMode(data))
    names = [tool.name for tool in tools]
    if data not in names:
        raise ToolError(
            "tools.choice",
            "No tool is called {name}. Choose auto, none, required, or one of the tools: {names}.",
            name=shown(data),
            names=", ".join(names[:8]) or "there are none",
        )
    return ToolChoice(ChoiceMode.required, data)


def is_plain_text(schema: Any) -> bool:
    """Return True if an argument is a text without further conditions, but maybe one of some: forms without quotes of
    JSON write it as it is."""
    return isinstance(schema, Mapping) and schema.get("type") == "string" and schema.keys() <= _SAID


def depth_of(text: str) -> int:
    """Return the most brackets of a JSON text that are open at a time; at most MOST_DEEP + 1."""
    depth = most = 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text):
        if found[0] in "[{":
            depth += 1
            most = max(most, depth)
            if most > MOST_DEEP:
                break
        elif found[0] in "]}":
            depth -= 1
    return most


def _tool(entry: Any, number: int) -> ToolDefinition:
    inner = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise ToolError(
            "tools.form", "Tool {number} has no name: it must be {form}.", number=number, form=_FORM
        )  # fmt: skip
    name = inner["name"]
    if not _NAME.fullmatch(name):
        raise ToolError(
            "tools.name",
            "A tool is called {name}, but its name may have only letters of English, digits, _ and -, up to 64.",
            name=shown(name),
        )
    description, parameters = inner.get("description") or "", inner.get("parameters")
    if not isinstance(description, str):
        raise ToolError("tools.description", "The description of the tool {name} must be a text.", name=name)
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise ToolError(
            "tools.parameters",
            'The parameters of the tool {name} must be a JSON Schema of an object: {"type": "object", "properties": '
            "{...}}.",
            name=name,
        )
    if not isinstance(parameters.get("properties", {}), Mapping):
        raise ToolError(
            "tools.properties", "The properties of the tool {name} must be an object of schemas.", name=name
        )  # fmt: skip
    return ToolDefinition(name, description, {"type": "object", **parameters})
