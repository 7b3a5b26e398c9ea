"""Two hundred clients, of which some leave, stall or lie: each of the others gets what it would get alone, and nothing
is left of any."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from app.api.server import ApiOptions, ApiServer
from py_core.loading import Model
from tests.api.served import listening, until

alone = pytest.mark.asyncio(loop_scope="module")
CONNECTIONS, AT_ONCE, STALLED = 200, 64, 2
UNREAD_SECONDS = 1.0
BUFFERED = 256 << 10
"""The most bytes that a client that does not read may leave in the server. uvicorn stops at 64 kB and a piece."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(write_model, open_model) -> AsyncIterator[Model]:
    model = await open_model(write_model(tied=False, context=2048))
    yield model
    model.close()


def body_of(kind: int, **more: Any) -> dict[str, Any]:
    """kind: of eight requests; half are greedy."""
    messages = [{"role": "user", "content": f"Tell me about the number {kind}."}]
    return {"messages": messages, "max_tokens": 8, "temperature": kind % 2, "seed": kind, "stream": True, **more}


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


async def refused(http: httpx.AsyncClient, body: bytes, said: str) -> None:
    response = await http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


async def leave(address: str, body: dict[str, Any], lines: int) -> None:
    async with sent(address, json.dumps({**body, "max_tokens": 1500}).encode()) as (reader, _):
        for _ in range(lines):
            await reader.readline()


@alone
async def test_each_gets_what_it_would_get_alone_and_nothing_is_left(model: Model) -> None:
    api = ApiServer(model, ApiOptions(answers=8, queue=AT_ONCE, unread_seconds=UNREAD_SECONDS))
    turns = asyncio.Semaphore(AT_ONCE)
    each_closed = {"timeout": 60, "headers": {"Connection": "close"}, "limits": httpx.Limits(max_connections=None)}
    async with (
        listening(api, send_buffer=4096) as (server, address),
        httpx.AsyncClient(base_url=address, **each_closed) as http,
    ):
        texts = [await answer(http, body_of(kind)) for kind in range(8)]
        assert len(set(texts)) == 8

        async def stall() -> None:
            """Ask for a long answer, and read nothing; the server ends the connection."""
            body = json.dumps(body_of(0, max_tokens=800)).encode()
            async with sent(address, body, 4096) as (reader, _):
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                await until(is_over)

        async def is_over() -> bool:
            """All answers but those of the stalled clients have come, and the server has dropped those."""
            return finished == CONNECTIONS and api.door.slots.running == 0

        finished, kept = 0, list[int]()

        async def client(number: int) -> None:
            nonlocal finished
            kind = number % 8
            async with turns:
                match number // 8 % 5:
                    case 0:
                        assert await answer(http, body_of(kind)) == texts[kind]
                    case 1:
                        assert await answer(http, body_of(kind, stream=False)) == texts[kind]
                    case 2:
                        await leave(address, body_of(kind), 3 * kind)  # before the head to the third token
                    case 3:
                        long = json.dumps(body_of(kind, messages=[{"role": "user", "content": "a " * (1 << 19)}]))
                        await refused(http, long.encode(), "characters")
                    case 4:
                        await refused(http, b'{"messages": [' + b"[" * (1 << kind), "not JSON")
            finished += 1
            kept.append(sum(one.transport.get_write_buffer_size() for one in server.server_state.connections))

        stalled = [asyncio.ensure_future(stall()) for _ in range(STALLED)]
        await asyncio.gather(*map(client, range(CONNECTIONS)))
        await asyncio.gather(*stalled)
        assert max(kept) < BUFFERED * STALLED
        assert (api.door.slots.running, api.door.slots.waiting, len(api.door._running)) == (0, 0, 0)
        assert not model.engine._sequences
        told = (await http.get("/metrics")).text
    figures = {one.name: one.value for family in text_string_to_metric_families(told) for one in family.samples}
    assert figures["llamacpp:requests_processing"] == figures["llamacpp:requests_deferred"] == 0
    assert figures["llamacpp:kv_cache_usage_ratio"] == 0
    assert figures["llamacpp:tokens_predicted_total"] > 8 * (8 + 2 * CONNECTIONS / 5)
    assert figures["llamacpp:prompt_tokens_total"] > 0
    assert figures["llamacpp:tokens_predicted_seconds_total"] > 0
