"""Tools that a server of the Model Context Protocol offers: their arguments are checked, their errors are sentences."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp.shared.exceptions import MCPError

from app.models.cache import CacheError
from py_core.display import sentence_of, shown
from py_core.messages import UserError

TOLD = (UserError, CacheError, ValueError, OSError)
"""Errors whose message is a sentence for a person, as in `sonata`'s commands."""


@dataclass(frozen=True)
class OfferedTool:
    """A tool by its JSON Schema. run: gets valid arguments and returns what is told, as plain data; may raise one of
    TOLD, whose sentence is told. changes: "nothing", "adds" something to the memory, or "deletes"."""

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    changes: str = "nothing"

    def told(self) -> types.Tool:
        """Return the form in which clients list it."""
        hints = types.ToolAnnotations(
            read_only_hint=self.changes == "nothing", destructive_hint=self.changes == "deletes",
            idempotent_hint=True, open_world_hint=False,
        )  # fmt: skip
        return types.Tool(
            name=self.name, title=self.title, description=self.description, input_schema=self.parameters,
            annotations=hints,
        )  # fmt: skip


async def call(tools: Sequence[OfferedTool], name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Run a tool by its name. Raises MCPError if there is no such tool; all other problems are results."""
    tool = next((one for one in tools if one.name == name), None)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no tool {name[:100]!r} here.")
    problem = best_match(Draft202012Validator(tool.parameters).iter_errors(arguments))
    if problem is not None:
        place = "".join(f"{part}: " for part in problem.absolute_path)
        said = problem.message.replace(repr(problem.instance), shown(problem.instance))
        return _failed(f"The arguments do not fit: {place}{said}.")
    try:
        told = await tool.run(arguments)
    except TOLD as error:
        return _failed(sentence_of(error))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return _failed(f"{name} failed inside Sonata ({type(error).__name__}); its standard error has more.")
    text = json.dumps(told, ensure_ascii=False, indent=1)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=told)


@contextmanager
def as_protocol_errors() -> Iterator[None]:
    """Turn errors of requests that have no result for them, such as reading a resource, into errors of the protocol."""
    try:
        yield
    except TOLD as error:
        code = types.INVALID_PARAMS if isinstance(error, ValueError) else types.INTERNAL_ERROR
        raise MCPError(code, sentence_of(error)) from error


def _failed(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)


def parameters(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema
