"""The API over HTTP: routes for `create_app` of the site's server, or a server of their own.

POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /tokenize; GET /v1/models, /health.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.completions import ChatAnswer, CompletionAnswer
from app.api.embeddings import NAME, EmbeddingsRequest, embeddings
from app.api.errors import ApiError
from app.api.requests import ChatRequest, CompletionRequest, Sampled, read
from app.api.responses import ResponseAnswer, ResponsesRequest
from app.api.slots import Slots
from app.native_runtime import open_embedder
from app.server.guard import LIMITS, ClientLimits, KnownNames
from app.server.site import Server, listen_at, server_config
from py_core.backend_errors import BackendError
from py_core.display import one_line
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError, SentenceEmbedder

T = TypeVar("T")
Answer = ChatAnswer | CompletionAnswer | ResponseAnswer
_log = logging.getLogger(__name__)
_GONE = 499  # the client closed the connection; nobody reads this status


@dataclass(frozen=True)
class ApiOptions:
    """keys: any of them opens the API; without one everybody may use it. origins: of pages that may. names: the
    server's host names, besides IP addresses. answers: at a time. queue: requests that may wait. body_bytes: the most
    of a request."""

    keys: Collection[str] = ()
    origins: Collection[str] = ()
    names: Collection[str] = ("localhost",)
    answers: int = 16
    queue: int = 256
    body_bytes: int = 8 << 20


class ApiServer:
    """Answers requests with one model."""

    def __init__(self, model: Model, options: ApiOptions) -> None:
        self._embedder: SentenceEmbedder | None = None
        self._model, self._options = model, options
        self._slots = Slots(options.answers, options.queue)
        self._name = model.config.name or "sonata"

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self._door(self._chat), methods=["POST"]),
            Route("/v1/completions", self._door(self._completions), methods=["POST"]),
            Route("/v1/responses", self._door(self._responses), methods=["POST"]),
            Route("/v1/embeddings", self._door(self._embeddings), methods=["POST"]),
            Route("/v1/models", self._door(self._models), methods=["GET"]),
            Route("/tokenize", self._door(self._tokenize), methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
        ]

    def _door(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Check the key, and answer errors in OpenAI's form."""

        async def opened(request: Request) -> Response:
            try:
                self._check_key(request)
                return await answer(request)
            except ApiError as error:
                return _refusal(error)
            except ClientDisconnect:
                return Response(status_code=_GONE)
            except (BackendError, EmbedderError) as error:
                return _refusal(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE))

        return opened

    def _check_key(self, request: Request) -> None:
        if not self._options.keys:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip().encode()
        if not any(hmac.compare_digest(given, key.encode()) for key in self._options.keys):
            raise ApiError(
                "This server wants a key: send it as `Authorization: Bearer KEY`.", HTTPStatus.UNAUTHORIZED,
                code="invalid_api_key",
            )  # fmt: skip

    async def _chat(self, request: Request) -> Response:
        asked = read(ChatRequest, await self._body(request))
        self._check_model(asked.model)
        answer = ChatAnswer(self._model, self._name, asked)
        await answer.prepare()
        return await self._answered(request, answer, asked)

    async def _completions(self, request: Request) -> Response:
        asked = read(CompletionRequest, await self._body(request))
        self._check_model(asked.model)
        return await self._answered(request, CompletionAnswer(self._model, self._name, asked), asked)

    async def _responses(self, request: Request) -> Response:
        asked = read(ResponsesRequest, await self._body(request))
        self._check_model(asked.model)
        answer = ResponseAnswer(self._model, self._name, asked)
        await answer.prepare()
        return await self._answered(request, answer, asked)

    async def _embeddings(self, request: Request) -> Response:
        asked = read(EmbeddingsRequest, await self._body(request))
        if asked.model not in ("", NAME):
            raise _no_model(asked.model, NAME)
        self._embedder = self._embedder or open_embedder()
        return JSONResponse(await embeddings(self._embedder, asked))

    async def _answered(self, request: Request, answer: Answer, asked: Sampled) -> Response:
        if asked.stream:
            return _Stream(self._slots, asked.n, answer)

        async def whole() -> dict[str, Any]:
            async with self._slots.held(asked.n):
                return await answer.whole()

        return JSONResponse(await until_gone(request.receive, whole()))

    async def _models(self, request: Request) -> Response:
        entry = {
            "id": self._name, "object": "model", "created": 0, "owned_by": "sonata",
            "context_length": self._model.engine.context_length,
        }  # fmt: skip
        return JSONResponse({"object": "list", "data": [entry]})

    async def _tokenize(self, request: Request) -> Response:
        body = await self._body(request)
        text = body.get("content", body.get("prompt")) if isinstance(body, dict) else None
        if not isinstance(text, str):
            raise ApiError("Give the text as `content`.", param="content")
        return JSONResponse({"tokens": self._model.tokenizer.encode(text)})

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "running": self._slots.running, "waiting": self._slots.waiting})

    def _check_model(self, name: str) -> None:
        if name and name != self._name:
            raise _no_model(name, self._name)

    async def _body(self, request: Request) -> Any:
        """The JSON of a request. Raises ApiError."""
        data, most = bytearray(), self._options.body_bytes
        async for piece in request.stream():
            data += piece
            if len(data) > most:
                raise ApiError(
                    f"The request is larger than {most:,} bytes: send less.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                )
        try:
            return json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ApiError("The body is not JSON: send an object of JSON in UTF-8.") from None


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
                return await _refusal(ApiError(sentence, HTTPStatus.FORBIDDEN))(scope, receive, send)
        await self._app(scope, receive, send)


def create_api(model: Model, options: ApiOptions = ApiOptions()) -> Starlette:
    """Return a server that answers the API only."""
    middleware = [
        Middleware(KnownNames, names=options.names),
        Middleware(
            CORSMiddleware, allow_origins=list(options.origins), allow_methods=["*"], allow_headers=["*"],
        ),
        Middleware(KnownOrigins, origins=options.origins),
    ]  # fmt: skip
    return Starlette(
        routes=ApiServer(model, options).routes(), middleware=middleware,
        exception_handlers={404: _not_there, 405: _not_there, 500: _broken},
    )  # fmt: skip


def api_config(model: Model, options: ApiOptions) -> uvicorn.Config:
    """Return the configuration of a server: a program has a connection for each request, and ends it to leave."""
    return server_config(create_api(model, options), ClientLimits(per_address=LIMITS.in_all // 2, half_open=False))


async def serve_api(model: Model, options: ApiOptions, host: str, port: int) -> None:
    """Serve the API until Ctrl-C, and print its address once it is reachable. Raises ServerError if the port is not
    available."""
    listener, address = listen_at(host, port)
    try:
        await Server(api_config(model, options), f"{address}/v1", False).serve([listener])
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


class _Stream(Response):
    """The chunks of an answer as server-sent events, once a slot is free."""

    def __init__(self, slots: Slots, answers: int, answer: Answer) -> None:
        super().__init__()
        self._slots, self._answers, self._answer = slots, answers, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as held:
            try:
                await until_gone(receive, held.enter_async_context(self._slots.held(self._answers)))
            except ApiError as error:
                return await _refusal(error)(scope, receive, send)
            except ClientDisconnect:
                return
            async with aclosing(self._events()) as events:
                stream = StreamingResponse(
                    events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
                )
                await stream(scope, receive, send)

    async def _events(self) -> AsyncGenerator[str]:
        try:
            async with aclosing(self._answer.chunks()) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    named = f"event: {chunk['type']}\n" if "type" in chunk else ""
                    yield f"{named}data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
        except BackendError as error:
            yield f"data: {json.dumps(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE).body())}\n\n"
        if not isinstance(self._answer, ResponseAnswer):
            yield "data: [DONE]\n\n"


def _no_model(name: str, known: str) -> ApiError:
    return ApiError(
        f"There is no model {one_line(name)[:80]} here: this is {known}.", HTTPStatus.NOT_FOUND, param="model",
        code="model_not_found",
    )  # fmt: skip


def _refusal(error: ApiError) -> Response:
    headers = {"Retry-After": "1"} if error.status == HTTPStatus.TOO_MANY_REQUESTS else None
    return JSONResponse(error.body(), error.status, headers)


async def _not_there(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", HTTPStatus.NOT_FOUND)
    return _refusal(ApiError(f"There is no {request.method} {one_line(request.url.path)[:80]} here.", status))


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _refusal(ApiError(f"The server failed ({type(error).__name__}): this is a mistake in Sonata.", 500))


def _no_number(name: str) -> Any:
    raise ValueError(name)
