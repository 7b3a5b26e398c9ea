"""Tools that the page runs for the model: its own Python, a dropped file of functions, MCP servers.

A source of the page (web/tools/page_tools.js) offers definitions. A call of such a tool is asked of the page as a
ToolAsk, and waits for the page's answer, the tool's time limit, or Stop. Each tab has a session, so the tab that shows
the answer is the one that is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from app.tools import Tool
    from py_core.tool_calls.definitions import ToolDefinition

GONE = "The page that runs this tool is gone."


class ToolAsk(TypedDict):
    """A call that the page should run. isOver: nobody waits for its answer any more; the rest is as before."""

    id: str
    source: str
    name: str
    arguments: Mapping[str, Any]
    isOver: bool


class OfferedTools:
    """The tools that one page runs."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._asks: asyncio.Queue[ToolAsk | None] | None = None
        self._ids = count(1)

    @property
    def tools(self) -> list[Tool]:
        """All that are offered."""
        return [tool for tools in self._sources.values() for tool in tools]

    def offer(self, source: str, definitions: Sequence[Mapping[str, Any]], seconds: float | None) -> None:
        """Replace the tools of a source. Raises ToolError, also if another source has a tool of this name."""
        from py_core.tool_calls.definitions import check_names, tools_from  # late: few pages have tools

        read = tools_from(list(definitions))
        others = [tool.definition for other, tools in self._sources.items() if other != source for tool in tools]
        check_names([*others, *read])
        self._sources.pop(source, None)
        if read:
            self._sources[source] = tuple(self.tool(source, definition, seconds) for definition in read)

    def tool(self, source: str, definition: ToolDefinition, seconds: float | None = None) -> Tool:
        """Return a tool that this source of the page runs. seconds: of a call."""
        from app.tools import Tool

        async def run(arguments: Mapping[str, Any]) -> str:
            return await self.ask(source, definition.name, arguments)

        return Tool(definition, run, seconds=seconds)

    async def asks(self) -> AsyncIterator[ToolAsk]:
        """Yield calls for the page as long as it listens. A second listener replaces the first one."""
        self.close()
        asks = self._asks = asyncio.Queue()
        try:
            while (ask := await asks.get()) is not None:
                yield ask
        finally:
            if self._asks is asks:
                self.close()

    def answer(self, id: str, text: str, failed: bool) -> None:
        """Take the result of a call, or a sentence on why it failed. One that nobody waits for is ignored."""
        from app.tools import ToolFailure
        from app.tools.functions import result_text

        waiting = self._waiting.get(id)
        if waiting is None or waiting.done():
            return
        told = result_text(text)
        if failed:
            waiting.set_exception(ToolFailure(told))
        else:
            waiting.set_result(told)

    def close(self) -> None:
        """Ask the page no more: it is gone, or begins again."""
        asks, self._asks = self._asks, None
        if asks is not None:
            asks.put_nowait(None)
        for id in list(self._waiting):
            self.answer(id, GONE, failed=True)

    async def ask(self, source: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the page's result of a call. Raises ToolFailure, also if the page is gone."""
        from app.tools import ToolFailure

        asks = self._asks
        if asks is None:
            raise ToolFailure(GONE)
        ask = ToolAsk(id=str(next(self._ids)), source=source, name=name, arguments=arguments, isOver=False)
        waiting = self._waiting[ask["id"]] = asyncio.get_running_loop().create_future()
        asks.put_nowait(ask)
        try:
            return await waiting
        except asyncio.CancelledError:
            asks.put_nowait({**ask, "isOver": True})
            raise
        finally:
            del self._waiting[ask["id"]]


class ToolsApi:
    """Each public method is a call of the page."""

    def __init__(self, offered: OfferedTools) -> None:
        self._offered = offered

    def offer(self, source: str, definitions: Sequence[dict[str, Any]], seconds: float | None = None) -> None:
        """Let the model call these tools of a source instead of those that it had; none withdraws it. seconds: of a
        call, None for the usual limit."""
        self._offered.offer(source, definitions, seconds)

    def asks(self) -> AsyncIterator[ToolAsk]:
        return self._offered.asks()

    def answer(self, id: str, text: str, failed: bool) -> None:
        self._offered.answer(id, text, failed)
