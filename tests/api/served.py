"""A server of the API in this process, over real connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app.api.server import ApiListener, ApiServer
from app.server.site import listen


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - another program's state
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(api: ApiServer, send_buffer: int | None = None) -> AsyncIterator[tuple[ApiListener, str]]:
    """Gives the server and its address. send_buffer: bytes of the system's buffer of each connection."""
    listener = listen("127.0.0.1", 0)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = ApiListener(api, "")
    running = asyncio.ensure_future(server.serve(sockets=[listener]))

    async def is_started() -> bool:
        return server.started

    await until(is_started)
    yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await running
    listener.close()


@asynccontextmanager
async def served(api: ApiServer) -> AsyncIterator[str]:
    """Gives the address of a server."""
    async with listening(api) as (_, address):
        yield address
