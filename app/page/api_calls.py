"""The API for clients in the browser: web/sonata.js, and the service worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, TypedDict

from app.page.talk import PageTalk
from py_core.routing.embedder import SentenceEmbedder

if TYPE_CHECKING:
    from app.api.door import Door
    from app.api.lessons import LessonMemory

ANSWERS = 8
QUEUE = 64
OWN_MEMORY = "default"
"""The name of the page's memory in requests, as natively."""
BEAT = 0.25
"""Seconds between empty parts while a reply is made: by them it is noticed that the client has left."""


class ApiPart(TypedDict):
    """A part of a reply. status: of the first that has something to say, with its headers. text: more of the body."""

    status: int | None
    headers: dict[str, str]
    text: str


class ApiCalls:
    """Each public method is a call of the page."""

    def __init__(self, talk: PageTalk) -> None:
        self._talk = talk
        self._door: Door | None = None
        self._memories: dict[str, LessonMemory] = {}

    async def request(self, method: str, path: str, body: str = "") -> AsyncIterator[ApiPart]:
        """Answer a request as `sonata serve --api` does, beside the conversation of the page. path: such as
        "/v1/chat/completions". Leaving the stream ends the answer."""
        from app.api.door import Door  # late: few pages are asked
        from app.api.slots import Slots

        self._open_memory(path, body)
        door = self._door = self._door or Door(self._talk.model, self._embedder, Slots(ANSWERS, QUEUE), self._memories)
        with self._talk.requested():
            async with AsyncExitStack() as held:
                answered = door.answered(method, path, body.encode("utf-8", "replace"))
                opening = asyncio.ensure_future(held.enter_async_context(answered))
                try:
                    while not (await asyncio.wait([opening], timeout=BEAT))[0]:
                        yield _part()
                finally:
                    opening.cancel()  # does nothing once it is there
                    await asyncio.wait([opening])
                reply = await opening
                if isinstance(reply.body, bytes):
                    yield _part(reply.body.decode(), reply.status, reply.headers)
                    return
                yield _part("", reply.status, reply.headers)
                async for text in reply.body:
                    yield _part(text)

    def _open_memory(self, path: str, body: str) -> None:
        """Let a request that names a memory use the page's, once it can be taught."""
        runtime = self._talk.runtime
        names_one = '"sonata"' in body or path.startswith("/v1/sonata/")
        if self._memories or runtime.learning is None or not names_one:
            return
        from app.api.lessons import LessonMemory  # late, as above

        self._memories[OWN_MEMORY] = LessonMemory(runtime, self._talk.model())

    def _embedder(self) -> SentenceEmbedder:
        embedder = self._talk.runtime.embedder()
        if not isinstance(embedder, SentenceEmbedder):
            from app.api.errors import ApiError

            raise ApiError("There are no embeddings without routing: load it, too.", HTTPStatus.SERVICE_UNAVAILABLE)
        return embedder


def _part(text: str = "", status: int | None = None, headers: Mapping[str, str] | None = None) -> ApiPart:
    return {"status": None if status is None else int(status), "headers": dict(headers or {}), "text": text}
