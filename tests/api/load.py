"""Clients of the API, some of which leave, or send bad requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

KINDS = 8
EACH_CLOSED: dict[str, Any] = {
    "timeout": 600, "headers": {"Connection": "close"}, "limits": httpx.Limits(max_connections=None),
}  # fmt: skip
"""Options of a client of httpx that has a connection for each request."""


def body_of(kind: int, tokens: int, **more: Any) -> dict[str, Any]:
    """A chat. kind: below KINDS; half are greedy."""
    messages = [{"role": "user", "content": f"Tell me about the number {kind}."}]
    return {"messages": messages, "max_tokens": tokens, "temperature": kind % 2, "seed": kind, "stream": True, **more}


@asynccontextmanager
async def sent(
    address: str, body: bytes, receive_buffer: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a chat was asked for."""
    parts = urlsplit(address)
    connection = socket.socket()
    connection.setblocking(False)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(connection, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 12 if receive_buffer else 1 << 20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(http: httpx.AsyncClient, body: dict[str, Any]) -> str:
    """The text of an answer."""
    response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if not body["stream"]:
        return response.json()["choices"][0]["message"]["content"]
    assert response.text.endswith("data: [DONE]\n\n")
    chunks = [json.loads(line[6:]) for line in response.text.split("\n\n") if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def refused(http: httpx.AsyncClient, body: bytes, code: str | None) -> None:
    response = await http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


async def leave(address: str, kind: int, lines: int) -> None:
    """Read some lines of a long answer."""
    async with sent(address, json.dumps(body_of(kind, 1500)).encode()) as (reader, _):
        for _ in range(lines):
            await reader.readline()


async def load(
    http: httpx.AsyncClient, texts: Sequence[str], connections: int, at_once: int, tokens: int,
    ended: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Let `connections` clients ask, at most `at_once` at a time. A fifth reads a stream, a fifth a whole answer, a
    fifth leaves in the middle, a fifth sends a prompt of 1 MB, and a fifth what is not JSON.

    texts: of each kind's answer alone. ended: called after each client. Raises AssertionError if one gets another
    answer than that.
    """
    turns, address = asyncio.Semaphore(at_once), str(http.base_url)

    async def client(number: int) -> None:
        kind = number % KINDS
        async with turns:
            match number // KINDS % 5:
                case 0:
                    assert await answer(http, body_of(kind, tokens)) == texts[kind]
                case 1:
                    assert await answer(http, body_of(kind, tokens, stream=False)) == texts[kind]
                case 2:
                    await leave(address, kind, 8 * kind)  # before the head, or behind some tokens
                case 3:
                    long = body_of(kind, tokens, messages=[{"role": "user", "content": "a " * (1 << 19)}])
                    await refused(http, json.dumps(long).encode(), "context_length_exceeded")
                case 4:
                    await refused(http, b'{"messages": [' + b"[" * (1 << kind), None)
        ended()

    await asyncio.gather(*map(client, range(connections)))
