"""The API over HTTP: routes for `create_app` of the site's server, or a server of their own."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import AsyncGenerator, Awaitable, Collection, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.door import Door, Reply, refusal
from app.api.errors import ApiError
from app.api.event_stream import together
from app.api.lessons import LessonMemory
from app.api.metrics import CONTENT_TYPE, metrics
from app.api.slots import Slots
from app.native_runtime import open_embedder
from app.server.guard import LIMITS, ClientLimits, KnownNames
from app.server.site import Server, listen_at, server_config
from py_core.display import one_line
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder

T = TypeVar("T")
METRICS = "/metrics"


@dataclass(frozen=True)
class ApiOptions:
    """keys: any of them opens the API; without one everybody may use it. origins: of pages that may. names: the
    server's host names, besides IP addresses. answers: at a time. queue: requests that may wait. body_bytes: the most
    of a request. unread_seconds: as in ClientLimits."""

    keys: Collection[str] = ()
    origins: Collection[str] = ()
    names: Collection[str] = ("localhost",)
    answers: int = 16
    queue: int = 256
    body_bytes: int = 8 << 20
    unread_seconds: float = 60.0


class ApiServer:
    """The door behind HTTP: keys, the size of bodies, clients that leave, and /metrics."""

    def __init__(
        self, model: Model, options: ApiOptions = ApiOptions(), memories: Mapping[str, LessonMemory] | None = None
    ) -> None:
        """memories: those that requests may name."""
        self._embedder: SentenceEmbedder | None = None
        self._model, self._options = model, options
        self.door = Door(lambda: model, self._open_embedder, Slots(options.answers, options.queue), memories)

    def app(self) -> Starlette:
        """Return the application that answers the API only."""
        options = self._options
        middleware = [
            Middleware(KnownNames, names=options.names),
            Middleware(
                CORSMiddleware, allow_origins=list(options.origins), allow_methods=["*"], allow_headers=["*"],
            ),
            Middleware(KnownOrigins, origins=options.origins),
        ]  # fmt: skip
        routes = [Route(path, self) for path in sorted(self.door.paths)]
        routes.append(Route(METRICS, self._metrics, methods=["GET"]))
        handlers = {404: _not_there, 405: _not_there}
        app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    def config(self, site: ASGIApp | None = None) -> uvicorn.Config:
        """Return the configuration of a server. A program has a connection for each request, and ends it to leave.
        site: answers at all other addresses."""
        seconds = self._options.unread_seconds
        limits = ClientLimits(per_address=LIMITS.in_all // 2, half_open=False, unread_seconds=seconds)
        return server_config(self._beside(site) if site else self.app(), limits)

    def _beside(self, site: ASGIApp) -> ASGIApp:
        api, paths = self.app(), {*self.door.paths, METRICS}

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope.get("path", "")
            is_api = path in paths or path.startswith("/v1/")
            await (api if is_api else site)(scope, receive, send)

        return app

    def _open_embedder(self) -> SentenceEmbedder:
        self._embedder = self._embedder or open_embedder()
        return self._embedder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        async with AsyncExitStack() as held:
            try:
                self._check_key(request)
                body, query = await self._body(request), request.url.query
                answered = self.door.answered(request.method, f"{request.url.path}?{query}", body)
                reply = await until_gone(receive, held.enter_async_context(answered))
                if not isinstance(reply.body, bytes):
                    return await until_gone(receive, _send_stream(reply, reply.body, send))
            except ApiError as error:
                reply = refusal(error)
            except ClientDisconnect:
                return
            await response(reply)(scope, receive, send)

    async def _metrics(self, request: Request) -> Response:
        try:
            self._check_key(request)
        except ApiError as error:
            return response(refusal(error))
        text = metrics(self.door.totals, self.door.slots, self._model.engine)
        return Response(text, media_type=CONTENT_TYPE)

    def _check_key(self, request: Request) -> None:
        if not self._options.keys or request.url.path == "/health":
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip().encode()
        if not any(hmac.compare_digest(given, key.encode()) for key in self._options.keys):
            raise ApiError(
                "This server wants a key: send it as `Authorization: Bearer KEY`.", HTTPStatus.UNAUTHORIZED,
                code="invalid_api_key",
            )  # fmt: skip

    async def _body(self, request: Request) -> bytes:
        """Raises ApiError if the body is too large."""
        data, most = bytearray(), self._options.body_bytes
        async for piece in request.stream():
            data += piece
            if len(data) > most:
                raise ApiError(
                    f"The request is larger than {most:,} bytes: send less.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                )
        return bytes(data)


class KnownOrigins:
    """Refuses requests that a page of another site makes in a browser: it would read the answers of this machine."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app, self._origins = app, set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            origin = headers.get(b"origin", b"").decode("latin-1")
            own = urlsplit(origin).netloc == headers.get(b"host", b"").decode("latin-1")
            if origin and not own and origin not in self._origins and "*" not in self._origins:
                sentence = (
                    "Pages of this origin may not use the API: start the server with --allow-origin and the origin."
                )
                return await response(refusal(ApiError(sentence, HTTPStatus.FORBIDDEN)))(scope, receive, send)
        await self._app(scope, receive, send)


class ApiListener(Server):
    """Lets answers end before it closes their connections. site, is_shown: as in serve_api."""

    def __init__(self, api: ApiServer, address: str, site: ASGIApp | None = None, is_shown: bool = False) -> None:
        super().__init__(api.config(site), address, site is not None and is_shown)
        self._door = api.door

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.close()
        await super().shutdown(sockets)


async def serve_api(api: ApiServer, host: str, port: int, site: ASGIApp | None = None, is_shown: bool = False) -> None:
    """Serve the API until Ctrl-C, and print its address once it is reachable. site: served, too; is_shown: in a
    browser. Raises ServerError if the port is not available."""
    listener, address = listen_at(host, port)
    server = ApiListener(api, address if site else f"{address}/v1", site, is_shown)
    try:
        await server.serve([listener])
    finally:
        listener.close()


async def until_gone(receive: Receive, doing: Awaitable[T]) -> T:
    """Return what is awaited. It is cancelled if the client goes away: ClientDisconnect."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work, leaving = asyncio.ensure_future(doing), asyncio.ensure_future(gone())
    try:
        await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


def response(reply: Reply) -> Response:
    """Return the response of HTTP to a reply that is no stream."""
    assert isinstance(reply.body, bytes)
    return Response(reply.body, reply.status, dict(reply.headers))


async def _send_stream(reply: Reply, events: AsyncGenerator[str], send: Send) -> None:
    """Starlette's own cancels what it runs at each wait, also while a generator closes."""
    head = Response(None, reply.status, dict(reply.headers)).raw_headers
    head = [(name, value) for name, value in head if name != b"content-length"]
    await send({"type": "http.response.start", "status": reply.status, "headers": head})
    async with aclosing(together(events)) as texts:
        async for text in texts:
            await send({"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _not_there(request: Request, error: Exception) -> Response:
    sentence = f"There is no {request.method} {one_line(request.url.path)[:80]} here."
    return response(refusal(ApiError(sentence, getattr(error, "status_code", HTTPStatus.NOT_FOUND))))
