"""`sonata tools list | call`: the tools of MCP servers."""

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

from app.cli.mcp import check_package
from app.cli.models import JsonOption
from app.cli.terminal import console, say
from py_core.display import one_line, why_not_json

tools_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List and call the tools of MCP servers.",
)  # fmt: skip
notes = console(stderr=True)

ServersOption = Annotated[
    Path,
    typer.Option("--mcp", metavar="FILE", help='The servers: {"mcpServers": {NAME: {"command": ..., "args": ...}}}.'),
]


@tools_app.command("list")
def list_tools(servers: ServersOption, as_json: JsonOption = False) -> None:
    """Show the tools of each server. What a server says about them is shown as it is."""
    check_package()
    from app.mcp.server_file import read_server_file  # late: the package mcp takes a second to import
    from app.mcp.tool_servers import ServerTool, ToolServers

    async def run() -> tuple[list[ServerTool], dict[str, str]]:
        async with ToolServers(read_server_file(servers)) as opened:
            return opened.tools, opened.problems

    tools, problems = asyncio.run(run())
    if as_json:
        print(json.dumps([{**asdict(tool.definition), "server": tool.server} for tool in tools]))
    elif tools:
        table = Table("tool", "server", "what it says it does")
        for tool in tools:
            table.add_row(tool.name, tool.server, escape(one_line(tool.definition.description)))
        console().print(table)
    for problem in problems.values():
        notes.print(problem, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@tools_app.command("call")
def call_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `sonata tools list`.")],
    servers: ServersOption,
    arguments: Annotated[
        Path | None, typer.Argument(metavar="[ARGS.json]", help="A JSON object of arguments; - for standard input.")
    ] = None,
    seconds: Annotated[float, typer.Option("--timeout", min=0.1, help="The longest time for the call.")] = 60.0,
) -> None:
    """Call one tool, and print its result as text. If the tool says that it failed, the exit status is 1."""
    check_package()
    from app.mcp.server_file import read_server_file
    from app.mcp.tool_servers import ToolResult, ToolServers

    given = _arguments(arguments)

    async def run() -> ToolResult:
        async with ToolServers(read_server_file(servers)) as opened:
            for problem in opened.problems.values():
                notes.print(problem, markup=False, soft_wrap=True)
            return await opened.call(name, given, seconds)

    result = asyncio.run(run())
    say(result.text)
    if result.is_error:
        raise typer.Exit(1)


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
