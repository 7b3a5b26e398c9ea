"""The server's guard against clients that hold connections, and against sites that impersonate it in a browser."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class ClientLimits:
    """The limits of one client."""

    head_seconds: float = 10.0
    """From the opening of a connection, or the first byte of a later request, to the end of the request's head. A
    browser sends it at once; a browser that opens connections in advance reopens them."""
    last_seconds: float = 2.0
    """How long data after the last status of a connection are read and discarded."""
    per_address: int = 64
    """Connections per client. A browser has six to a site, in each of its profiles."""
    in_all: int = 512
    """Connections in total. Each takes a file descriptor, and another for the file that it serves; systems allow 1,024.
    """

    unread_seconds: float | None = None
    """How long a client may leave unread what is sent to it; then its connection ends. None: as long as it likes."""

    half_open: bool = True
    """A client that sends no more, but may still read, gets its answers. If not, it has left: from here, a client that
    went away looks the same until something is written to it."""


LIMITS = ClientLimits()
SENTENCES = {
    HTTPStatus.BAD_REQUEST: "This is no HTTP request: look at what was sent.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The head of the request is too long: 64 kB is the most.",
    HTTPStatus.NOT_IMPLEMENTED: "This server reads bodies of requests in chunks or of a known length, and no others.",
}
"""The answer to an invalid request."""


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that ends connections beyond the limits, with a sentence if the other side has begun to speak.

    An invalid request, or one that ends early, gets a status if it has no answer yet, and nothing more of its
    connection is read. A running answer is sent to its end: a second status would be read as a part of it.
    """

    def __init__(self, *given: Any, limits: ClientLimits, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_over = False  # no more is read
        self._has_eof = False  # the other side sends no more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        clients = [getattr(other, "client", None) or ("", 0) for other in self.connections]
        address, _ = self.client or ("", 0)
        from_there = sum(host == address for host, _ in clients)
        if from_there > self._limits.per_address or len(self.connections) > self._limits.in_all:
            self._say(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "There are too many connections to this server: close some of them, then try again.",
            )
            self.transport.close()
            return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        super().data_received(data)
        if self._is_over or self.transport.is_closing():
            return
        if self._is_answering:
            self._stop_waiting()
        elif self._late is None:
            self._wait_for_head()

    def eof_received(self) -> bool:  # type: ignore[override]
        """True if the connection stays open: until the earlier requests are answered."""
        self._has_eof = True
        if self._is_over:
            return self._is_answering
        if self._is_answering and self.conn.their_state is not h11.SEND_BODY:
            return self._limits.half_open
        if self._is_answering or self.conn.trailing_data[0]:
            self._end(HTTPStatus.BAD_REQUEST, "The request ended early: send it again.")
        return self._is_answering

    def send_400_response(self, msg: str) -> None:
        """Called while the error of the parser is handled."""
        error = sys.exception()
        status = HTTPStatus(error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400)
        self._end(status, SENTENCES.get(status, SENTENCES[HTTPStatus.BAD_REQUEST]))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self._is_answering:
            return
        if self._is_over:
            self._close_soon()
        elif self._has_eof:
            if self.conn.trailing_data[0]:
                self._end(HTTPStatus.BAD_REQUEST, "The request ended early: send it again.")
            else:
                self.transport.close()
        elif self.conn.trailing_data[0] and self._late is None:
            self._unset_keepalive_if_required()  # the next request has begun
            self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if (most := self._limits.unread_seconds) is not None:
            self._unread = self.loop.call_later(most, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_abort()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_abort()
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.disconnected)

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _stop_abort(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _head_is_late(self) -> None:
        self._late = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._end(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time: send it at once.")
        else:
            self.transport.close()

    def _end(self, status: HTTPStatus, sentence: str) -> None:
        """Stop reading. The last request gets a status if no answer to it has begun."""
        self._is_over = True
        self._stop_waiting()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if self._is_answering:
                self.cycle.disconnected = True  # further data are discarded
                self.cycle.message_event.set()
            self._say(status, sentence)
        if not self._is_answering:
            self._close_soon()

    def _close_soon(self) -> None:
        """Close, but not at once: if there is more to read, the other side's system would discard our answer."""
        self._unset_keepalive_if_required()
        if self._has_eof or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.flow.resume_reading()
            self.transport.write_eof()
            self._late = self.loop.call_later(self._limits.last_seconds, self.transport.close)

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        body = f"{sentence}\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


class KnownNames:
    """Answers requests that address the server by an IP address or by one of `names`, and no others.

    A site's owner can point its domain to this machine after its page was loaded (DNS rebinding). To the browser the
    server is then a part of that site, whose scripts may read it; but the request carries the site's name.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.lower().rstrip(".") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._knows(name := _name_in(Headers(scope=scope).get("host", ""))):
            shown = name if len(name) < 100 and name.isprintable() else "that name"
            answer = PlainTextResponse(
                f"This server does not answer to {shown or 'a request without a name'}. If that is a name of this "
                f"machine, start the server with --allow-name and the name; or use the machine's IP address.\n",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
            return await answer(scope, receive, send)
        await self._app(scope, receive, send)

    def _knows(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name_in(host: str) -> str:
    """A Host header without its port, in lower case: "[::1]:8000" -> "::1"."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")
