"""HTTP to tool servers: an answer that does not end is cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

LONGEST_ANSWER = 32 << 20
"""Bytes of one answer, or of one stream of events."""


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Raises ReadError in an answer of more than LONGEST_ANSWER bytes."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._stream:
            read += len(piece)
            if read > LONGEST_ANSWER:
                raise httpx2.ReadError(f"the answer has more than {LONGEST_ANSWER >> 20} MB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
