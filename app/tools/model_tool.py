"""A tool that runs here, and what it may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py_core.display import one_line
from py_core.tool_calls.definitions import ToolDefinition, check_names

MOST_RESULT = 20_000
"""The most characters of a tool's result. A small model reads some thousand of them."""
_KINDS = {"host": "reach {what} over the network", "file": "read and write {what}", "server": "ask the server {what}"}
_WHOLE = {"memory": "read your memory", "memory-write": "add to your memory", "python": "run Python on this device"}


class ToolFailure(ValueError):
    """A tool could not do what it was asked for. The message is a sentence that the model and the user may read; it is
    part of the conversation, so it has no translations."""


class NotAToolError(ValueError):
    """A function, or a file, cannot be made tools. The message is a sentence for whoever wrote it, in English as its
    code."""


@dataclass(frozen=True)
class Tool:
    """A tool that a model may call.

    run: gets the arguments of a call, checks them, and returns what the model reads, at most some MOST_RESULT
    characters; raises ToolFailure. needs: what it may do beyond computing, as in `needs_in_words`. seconds: of a call,
    if the usual limit does not fit, as for a tool that asks the user.
    """

    definition: ToolDefinition
    run: Callable[[Mapping[str, Any]], Awaitable[str]]
    needs: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def name(self) -> str:
        return self.definition.name


def needs_in_words(needs: Iterable[str]) -> list[str]:
    """Return what a tool may do, each in words that follow "may": "host:example.com", "file:/home/me/notes",
    "server:NAME" (of MCP), "memory", "memory-write", "python"."""
    found = list[str]()
    for need in needs:
        kind, _, what = need.partition(":")
        found.append(_WHOLE.get(need) or _KINDS.get(kind, "use {what}").format(what=one_line(what or need)))
    return found


def tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by their names. Raises ToolError if two have the same."""
    every = list(tools)
    check_names([tool.definition for tool in every])
    return {tool.name: tool for tool in every}
