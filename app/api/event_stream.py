"""Answers as server-sent events. Events that come within some milliseconds are sent together: each part costs a system
call, and wakes the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from app.api.errors import ApiError
from py_core.backend_errors import BackendError

EVERY = 0.004
"""Seconds between two parts. Tokens that take longer are never held."""
AT_ONCE = 2
"""The first events, which go on without a task between: the head of an answer, and its first token. The next step may
be run on this thread."""


async def events_of(chunks: AsyncIterator[dict[str, Any]], *, done: bool) -> AsyncGenerator[str]:
    """Yield the events of these objects. done: the last event says [DONE]. A failure is an event, too."""
    try:
        async with aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                named = f"event: {chunk['type']}\n" if "type" in chunk else ""
                yield f"{named}data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
    except BackendError as error:
        yield f"data: {json.dumps(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE).body())}\n\n"
    if done:
        yield "data: [DONE]\n\n"


async def together(events: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """Yield texts of one or more events. What reads them may be slow: the answer goes on, and waits here as text.

    For a socket: in a page, where a timer costs more than a part, the events go out as they come."""
    held, has_more = list[str](), asyncio.Event()

    async def read() -> None:
        async for event in events:
            held.append(event)
            has_more.set()

    async with aclosing(events):
        for _ in range(AT_ONCE):
            if (event := await anext(events, None)) is None:
                return
            yield event
        reading = asyncio.ensure_future(read())
        reading.add_done_callback(lambda _: has_more.set())
        try:
            while not reading.done() or held:
                await has_more.wait()
                has_more.clear()
                if text := "".join(held):
                    held.clear()
                    yield text
                    await asyncio.wait([reading], timeout=EVERY)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.wait([reading])
