"""The ways to the clients of an MCP server: standard input and output, or HTTP on this machine."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from app.server.guard import KnownNames
from app.server.site import listen, server_config

PATH = "/mcp"
LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""The names by which programs, and pages, of this machine address it."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our standard input. Meanwhile whatever prints, prints to standard error."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def http_app(server: Server[Any]) -> Starlette:
    """Return the application of streamable HTTP at PATH. It refuses requests that address it by another name than one
    of this machine, or come from another site's page."""
    security = TransportSecuritySettings(
        allowed_hosts=[form for name in LOCAL for form in (name, f"{name}:*")],
        allowed_origins=[f"http://{name}:*" for name in LOCAL],
    )
    app = server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
    app.add_middleware(KnownNames, names=("localhost",))
    return app


async def serve_http(server: Server[Any], port: int) -> None:
    """Serve clients by streamable HTTP at http://localhost:port/mcp until Ctrl-C; port 0 takes a free one. Tells the
    address on standard error once it is reachable. Raises ServerError if the port is not available."""
    listener = listen("127.0.0.1", port)
    try:
        address = f"http://localhost:{listener.getsockname()[1]}{PATH}"
        await _Server(server_config(http_app(server), lifespan="on"), address).serve(sockets=[listener])
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """Tells its address once it is reachable."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        print(f"Sonata's MCP server is at {self._address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
