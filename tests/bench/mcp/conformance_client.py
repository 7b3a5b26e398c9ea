"""The client that the conformance tests start with the address of their server: Sonata's client, as `sonata tools` uses
it, lists the server's tools and calls each."""

from __future__ import annotations

import asyncio
import sys

from app.mcp.server_file import ServerEntry
from app.mcp.tool_servers import ToolServerError, ToolServers

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


async def run(url: str) -> int:
    async with ToolServers([ServerEntry("tested", url=url)]) as servers:
        for tool in servers.tools:
            try:
                print(await servers.call(tool.name, ARGUMENTS.get(tool.name, {}), 20.0))
            except ToolServerError as error:
                print(error)
        print(servers.problems)
        return len(servers.problems)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[-1])))
