"""`sonata tools list | call`: the tools that a model may call, built in, of the user's files and of MCP servers."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.home import HomeOption
from app.cli.models import JsonOption
from app.cli.terminal import console, say
from app.cli.tool_sources import (
    OfferedTools,
    PythonToolOption,
    ServersOption,
    ToolFilesOption,
    YesOption,
    allow,
    opened_tools,
    tool_files,
)
from py_core.display import one_line, shown, why_not_json

tools_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List and call the tools that a model may call.",
)  # fmt: skip
notes = console(stderr=True)
AFTER_SERVERS = 2.0
"""Seconds after the time limit in which a server's own sentence about it comes."""


@tools_app.command("list")
def list_tools(
    files: ToolFilesOption = None, servers: ServersOption = None, python: PythonToolOption = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show the tools: the built-in ones, those of the given files, and those of each server. What a server says about
    its tools is shown as it is."""
    from app.tools import needs_in_words

    loaded = tool_files(files)

    async def run() -> OfferedTools:
        async with opened_tools(loaded, servers, None, built_in=True, python=python) as offered:
            return offered

    offered = asyncio.run(run())
    if as_json:
        entries = [(tool.definition, offered.origins[name], tool.needs) for name, tool in offered.tools.items()]
        print(json.dumps([{**asdict(one), "from": origin, "needs": list(needs)} for one, origin, needs in entries]))
    else:
        table = Table("tool", "from", "what it says it does")
        for name, tool in offered.tools.items():
            needs = needs_in_words(need for need in tool.needs if not need.startswith("server:"))
            lines = [one_line(tool.definition.description), *(f"It may {need}." for need in needs)]
            table.add_row(name, *map(escape, (offered.origins[name], "\n".join(lines))))
        console().print(table)
    for problem in offered.problems:
        notes.print(problem, markup=False, soft_wrap=True)
    if offered.problems:
        raise typer.Exit(1)


@tools_app.command("call")
def call_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `sonata tools list`.")],
    arguments: Annotated[
        Path | None, typer.Argument(metavar="[ARGS.json]", help="A JSON object of arguments; - for standard input.")
    ] = None,
    files: ToolFilesOption = None,
    servers: ServersOption = None,
    python: PythonToolOption = False,
    seconds: Annotated[float, typer.Option("--timeout", min=0.1, help="The longest time for the call.")] = 60.0,
    yes: YesOption = False,
    home: HomeOption = None,
) -> None:
    """Call one tool, and print its result as text. If it fails, its sentence is printed, and the exit status is 1."""
    from app.tools import ToolFailure

    given, loaded = _arguments(arguments), tool_files(files)
    allow([file for file in loaded if any(tool.name == name and tool.needs for tool in file.tools)], home, yes)

    async def run() -> str:
        tools = opened_tools(loaded, servers, home, built_in=True, python=python, seconds=seconds)
        async with tools as offered:
            for problem in offered.problems:
                notes.print(problem, markup=False, soft_wrap=True)
            if (tool := offered.tools.get(name)) is None:
                raise ValueError(f"There is no tool {shown(name)}: there are {', '.join(list(offered.tools)[:20])}.")
            async with asyncio.timeout(seconds + AFTER_SERVERS):
                return await tool.run(given)

    try:
        say(asyncio.run(run()))
    except ToolFailure as failure:
        say(failure)
        raise typer.Exit(1) from None
    except TimeoutError:
        raise ValueError(f"{name} did not answer within {seconds:g} seconds.") from None


def _arguments(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8-sig")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The arguments are not JSON: {why_not_json(error)}.") from None
    if not isinstance(given, dict):
        raise ValueError('The arguments must be a JSON object, such as {"path": "notes.txt"}.')
    return given
