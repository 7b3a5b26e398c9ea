"""The tools of a command: those that are built in, of the user's files, of MCP servers, and Python."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.home import home_memory, opened_memory
from app.cli.mcp import check_package
from app.cli.terminal import console
from app.native_runtime import native_router
from app.runtime import Runtime, RuntimeConfig

if TYPE_CHECKING:
    from app.memory.items import MemoryItems
    from app.tools import Tool
    from app.tools.tool_file import ToolFile

BUILT_IN = "built-in"
"""The name of the tools that need no file, as --tools takes it, and as the list shows it."""
notes = console(stderr=True)

ToolFilesOption = Annotated[
    list[Path] | None,
    typer.Option("--tools", metavar="FILE.py", help="Functions with @tool; may be given several times."),
]
ServersOption = Annotated[
    Path | None,
    typer.Option("--mcp", metavar="FILE", help='The servers: {"mcpServers": {NAME: {"command": ..., "args": ...}}}.'),
]
PythonToolOption = Annotated[
    bool,
    typer.Option(
        "--python", help="Offer the tool python, which runs code in a process of its own that can read your files."
    ),
]  # fmt: skip
YesOption = Annotated[
    bool, typer.Option("--yes", help="Allow what the files of --tools declare, without a question, and keep_note.")
]  # fmt: skip


@dataclass
class OfferedTools:
    """origins: of each tool, by its name: "built-in", the name of its file, or its server. problems: of servers, a
    sentence each."""

    tools: dict[str, Tool] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def add(self, tools: Sequence[Tool], origin: str) -> None:
        """Raises ToolError if a name is taken."""
        from app.tools import tools_by_name

        self.tools = tools_by_name([*self.tools.values(), *tools])
        self.origins |= {tool.name: origin for tool in tools}


def tool_files(paths: Sequence[Path] | None) -> list[ToolFile]:
    """Load files of tools; BUILT_IN is none. Raises NotAToolError, OSError."""
    from app.tools.tool_file import load_tool_file

    with redirect_stdout(sys.stderr):
        return [load_tool_file(path) for path in paths or () if str(path) != BUILT_IN]


def allow(files: Sequence[ToolFile], home: Path | None, yes: bool) -> None:
    """Ask once for what the tools of files declare. yes: it is allowed this time. Raises ValueError if it is not
    allowed, OSError."""
    from app.tools import needs_in_words
    from app.tools.tool_file import Allowed

    if yes or not any(file.needs for file in files):
        return
    allowed = Allowed(home_memory(home).parent)
    for file in files:
        if not (lacking := allowed.lacking(file)):
            continue
        wanted = f"The tools of {file.path.name} may {', and '.join(needs_in_words(lacking))}"
        if not sys.stdin.isatty():
            raise ValueError(f"{wanted}. Nobody can be asked here: give --yes to allow it.")
        notes.print(f"{wanted}.", markup=False, soft_wrap=True)
        if not typer.confirm("Allow this, as long as the file stays the same?", err=True):
            raise ValueError(f"{file.path.name} was not allowed to do what its tools declare.")
        allowed.allow(file)


@asynccontextmanager
async def opened_tools(
    files: Sequence[ToolFile], servers: Path | None, home: Path | None, *, built_in: bool, python: bool,
    remembers: bool = True, writes: bool = True, memory: Callable[[], Awaitable[MemoryItems]] | None = None,
    attached: Sequence[tuple[Path, bytes]] = (), seconds: float = 60.0, redirects: bool = True,
) -> AsyncIterator[OfferedTools]:  # fmt: skip
    """Offer tools until the end of the block. remembers: with those of the memory. writes: also with those that add to
    it. memory: if it is open already; otherwise the first tool that needs it opens it. attached: files that `python`
    has in its folder. seconds: of a server's call. Raises ToolError if two have the same name, ValueError, OSError.

    redirects: what is printed meanwhile goes to standard error, as standard output is the command's.
    """
    from app.tools.built_in import built_in_tools
    from app.tools.memory_tools import memory_tools

    offered = OfferedTools()
    async with AsyncExitStack() as stack:
        if built_in:
            offered.add(built_in_tools(), BUILT_IN)
            if remembers:
                found = memory_tools(memory or _LateMemory(home, stack).items)
                offered.add([tool for tool in found if writes or "memory-write" not in tool.needs], BUILT_IN)
        if python:
            from app.interpreter.child import PythonChild
            from app.tools.python_tool import python_tool

            child = PythonChild()
            stack.push_async_callback(child.close)
            for path, data in attached:
                child.put(path.name, data)
            offered.add([python_tool(child)], BUILT_IN)
        for file in files:
            offered.add(file.tools, file.path.name)
        if servers is not None:
            check_package()
            from app.mcp.server_file import read_server_file  # late: the package mcp takes a second to import
            from app.mcp.tool_servers import ToolServers

            opened = await stack.enter_async_context(ToolServers(read_server_file(servers), taken=offered.tools))
            for server, tool in zip(opened.tools, opened.as_tools(seconds), strict=True):
                offered.add([tool], server.server)
            offered.problems = tuple(opened.problems.values())
        with redirect_stdout(sys.stderr) if redirects else nullcontext():
            yield offered


class _LateMemory:
    def __init__(self, home: Path | None, stack: AsyncExitStack) -> None:
        """stack: closes the memory."""
        self._home, self._stack, self._opening = home, stack, asyncio.Lock()
        self._items: MemoryItems | None = None

    async def items(self) -> MemoryItems:
        """Raises StoreError, OSError, ValueError."""
        from app.memory.items import MemoryItems

        async with self._opening:
            if self._items is None:
                memory = await self._stack.enter_async_context(opened_memory(self._home))
                runtime = await Runtime.open(RuntimeConfig(memory=memory, router=native_router))
                self._items = MemoryItems(runtime)
            return self._items
