"""The tools of other programs' servers, by the Model Context Protocol.

    async with ToolServers(read_server_file(path)) as servers:
        servers.tools                   # of all servers that answered
        servers.problems                # the others, each with a sentence
        await servers.call("read_file", {"path": "notes.txt"}, 60.0)

What a server sends is data of a stranger: it is bounded, and shown, but nothing in it is obeyed. A server gets only
what a call gives it: it may ask for a model's answer, a person's answer or a folder, and is refused.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Self

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from app.mcp.bounded_http import BoundedTransport
from app.mcp.server_file import ServerEntry
from app.mcp.server_process import ServerProcess
from app.tools import Tool, ToolFailure
from app.tools.functions import result_text
from py_core.display import one_line, plain, shown, whole_end
from py_core.tool_calls.definitions import MOST_DEEP, ToolDefinition, depth_of

CONNECT_SECONDS = 30.0
"""`npx` may download a server first."""
CALL_SECONDS = 60.0
CLOSE_SECONDS = 10.0
"""A process gets 6 seconds to end, and a server on the web is told that its session ends."""
MOST_TOOLS = 100
"""Tools of one server; more are left out."""
MOST_PAGES = 20
LONGEST_DESCRIPTION = 1_000  # characters
LONGEST_SCHEMA = 20_000  # characters of JSON
LONGEST_RESULT = 50_000
"""Characters of a result. A small model reads a tenth of it."""
LONGEST_NAME = 64
"""Characters of the name in a definition."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolServerError(ValueError):
    """A server or a tool failed; the message is a sentence."""


@dataclass(frozen=True)
class ServerTool:
    """A tool of a server. definition: as a model gets it, with a name that no other tool has, and the server's own
    description, cut to a length. own_name: as the server calls it."""

    definition: ToolDefinition
    server: str
    own_name: str

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True)
class ToolResult:
    """text: what a model reads; pictures and sounds are named in it. is_error: the tool says that it failed."""

    text: str
    is_error: bool


class ToolServers:
    """The servers of a file. `problems` has a sentence for each server that does not answer, or some of whose tools are
    left out."""

    def __init__(self, entries: Sequence[ServerEntry], taken: Collection[str] = ()) -> None:
        """taken: names of other tools, which no server's tool gets."""
        self.problems: dict[str, str] = {}
        self.tools: list[ServerTool] = []
        self._taken = taken
        self._servers = {entry.name: _Connection(entry) for entry in entries}

    async def __aenter__(self) -> Self:
        """Connect to all servers at once."""
        try:
            found = await asyncio.gather(*(self._told_by(name) for name in self._servers))
        except BaseException:
            await self.close()
            raise
        self.tools = _named([(name, tool) for name, tools in found for tool in tools], self._taken)
        return self

    async def _told_by(self, name: str) -> tuple[str, list[types.Tool]]:
        server = self._servers[name]
        try:
            tools = await server.open()
        except ToolServerError as error:
            self.problems[name] = str(error)
            return name, []
        if server.left_out:
            self.problems[name] = f"{name}: {server.left_out}"
        return name, tools

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections, and the processes that were started for them."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def as_tools(self, seconds: float = CALL_SECONDS) -> tuple[Tool, ...]:
        """Return the tools in the form of those that run here. They can be called until the servers are closed.
        seconds: of a call."""
        return tuple(Tool(one.definition, self._run_of(one, seconds), (f"server:{one.server}",)) for one in self.tools)

    def _run_of(self, tool: ServerTool, seconds: float) -> Callable[[Mapping[str, Any]], Awaitable[str]]:
        async def run(arguments: Mapping[str, Any]) -> str:
            try:
                result = await self.call(tool.name, dict(arguments), seconds)
            except ToolServerError as error:
                raise ToolFailure(str(error)) from error
            if result.is_error:
                raise ToolFailure(result_text(result.text))
            return result_text(result.text)

        return run

    async def call(self, name: str, arguments: dict[str, Any], seconds: float = CALL_SECONDS) -> ToolResult:
        """Call a tool of `tools` by its name. Raises ToolServerError if there is none, or its server does not answer
        in this time."""
        tool = next((one for one in self.tools if one.name == name), None)
        if tool is None:
            raise ToolServerError(
                f"There is no tool {shown(name)}: there are {_listed(one.name for one in self.tools)}."
            )
        return await self._servers[tool.server].call(tool.own_name, arguments, seconds)


class _Connection:
    """A connection to one server. It lives in a task of its own: it may be used and closed by any other."""

    def __init__(self, entry: ServerEntry) -> None:
        self._entry = entry
        self._process = (
            ServerProcess(entry.command, entry.arguments, entry.environment, entry.folder) if entry.command else None
        )
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_open, self._closing = asyncio.Event(), asyncio.Event()
        self.left_out = ""
        """A sentence about tools that are not offered."""

    async def open(self) -> list[types.Tool]:
        """Connect, and return the server's tools. Raises ToolServerError."""
        self._task = asyncio.ensure_future(self._run())
        is_open = asyncio.ensure_future(self._is_open.wait())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.wait([self._task, is_open], return_when=asyncio.FIRST_COMPLETED)
                if not self._is_open.is_set():
                    raise self._failed("does not answer", self._task.exception())
                return await self._listed()
        except TimeoutError:
            await self.close()
            raise ToolServerError(f"{self._entry.name} did not answer within {CONNECT_SECONDS:g} seconds.") from None
        except _FAILURES as error:
            await self.close()
            raise self._failed("did not tell its tools", error) from error
        finally:
            is_open.cancel()

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            if self._process is not None:
                transport: Any = self._process.opened()
            else:
                web = httpx2.AsyncClient(
                    headers=dict(self._entry.headers), transport=BoundedTransport(),
                    timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
                )  # fmt: skip
                await stack.enter_async_context(web)
                transport = streamable_http_client(self._entry.url, http_client=web)
            me = types.Implementation(name="sonata", version=version("sonata"))
            self._client = await stack.enter_async_context(Client(transport, client_info=me))
            self._is_open.set()
            await self._closing.wait()

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            if self._is_open.is_set():
                await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # was told already

    async def _listed(self) -> list[types.Tool]:
        assert self._client is not None
        found, cursor = dict[str, types.Tool](), None
        left_out = 0
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                fits = len(found) < MOST_TOOLS and tool.name not in found and _is_usable(tool.input_schema)
                left_out += not fits
                if fits:
                    found[tool.name] = tool
            if (cursor := page.next_cursor) is None:
                break
        else:
            left_out += 1
        if left_out:
            self.left_out = (
                f"Some of its tools are left out: they are more than {MOST_TOOLS}, have the same name, or a schema "
                f"that is not of an object, or has more than {LONGEST_SCHEMA:,} characters."
            )
        return list(found.values())

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> ToolResult:
        assert self._client is not None
        if self._process is not None:
            self._process.messages = 0
        # Not Client.call_tool: it checks the result by a schema of the server, whose patterns may take for ever.
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            async with asyncio.timeout(seconds + 1.0):
                result = await self._client.session.send_request(request, types.CallToolResult, seconds)
        except _FAILURES as error:
            is_late = isinstance(error, TimeoutError) or getattr(error, "code", None) == types.REQUEST_TIMEOUT
            how = f"did not answer {name} within {seconds:g} seconds" if is_late else f"could not run {name}"
            raise self._failed(how, None if is_late else error) from error
        return ToolResult(_text_of(result), result.is_error)

    def _failed(self, how: str, why: BaseException | None = None) -> ToolServerError:
        name = self._entry.name
        if self._process is not None and self._process.problem:
            return ToolServerError(plain(f"{name} {self._process.problem}."))
        while isinstance(why, BaseExceptionGroup):
            why = why.exceptions[0]
        if isinstance(why, OSError) and why.strerror and self._process is not None:
            return ToolServerError(f"{name} cannot be started: {self._entry.command}: {why.strerror}.")
        if isinstance(why, ValidationError):
            why = ValueError("what it sent does not follow the protocol")
        said = one_line(str(why)).removesuffix(".") if why is not None else ""
        return ToolServerError(f"{name} {how}{f': {said}' if said else ''}.")


_FAILURES = (
    *(MCPError, httpx2.HTTPError, OSError, TimeoutError, ValidationError, RuntimeError, BaseExceptionGroup),
    *(anyio.ClosedResourceError, anyio.BrokenResourceError),
)


def _is_usable(schema: dict[str, Any]) -> bool:
    try:
        text = json.dumps(schema)
    except RecursionError:
        return False
    return len(text) <= LONGEST_SCHEMA and depth_of(text) <= MOST_DEEP and schema.get("type", "object") == "object"


def _named(told: Sequence[tuple[str, types.Tool]], taken: Collection[str]) -> list[ServerTool]:
    """Give each tool a name of its own. A name that two servers use, or that is taken, belongs to neither: it gets the
    server's name before it."""
    own = [tool.name for _, tool in told]
    tools, names = list[ServerTool](), set(taken)
    for server, tool in told:
        name = tool.name
        if not _NAME.fullmatch(name) or own.count(name) > 1 or name in taken:
            name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{name}")[:LONGEST_NAME]
        number = 1
        while name in names:
            number += 1
            name = f"{name[: LONGEST_NAME - 4].removesuffix(f'_{number - 1}')}_{number}"
        names.add(name)
        about = plain(tool.description or "")
        about = about[: whole_end(about, min(LONGEST_DESCRIPTION, len(about)))]
        definition = ToolDefinition(name, about, {"type": "object", **tool.input_schema})
        tools.append(ServerTool(definition, server, tool.name))
    return tools


def _text_of(result: types.CallToolResult) -> str:
    parts = [_part(content) for content in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    if len(text) <= LONGEST_RESULT:
        return text
    end = whole_end(text, LONGEST_RESULT)
    return f"{text[:end]}\n(The result is longer: {len(text) - end:,} more characters were left out.)"


def _part(content: types.ContentBlock) -> str:
    if isinstance(content, types.TextContent):
        return content.text
    if isinstance(content, types.ResourceLink):
        return f"(A link to {one_line(content.name)}: {one_line(content.uri)})"
    if isinstance(content, types.EmbeddedResource):
        resource = content.resource
        if isinstance(resource, types.TextResourceContents):
            return resource.text
        return f"(A file that is not text is left out: {one_line(resource.uri)})"
    what = "A picture" if isinstance(content, types.ImageContent) else "A sound"
    return f"({what} is left out: {one_line(content.mime_type)}, {3 * len(content.data) // 4:,} bytes)"


def _listed(names: Any) -> str:
    return ", ".join(list(names)[:20]) or "none"
