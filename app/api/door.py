"""The API without a server: a request of any client in, a status and JSON or server-sent events out.

POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /tokenize; GET /v1/models, /health.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from app.api.completions import ChatAnswer, CompletionAnswer
from app.api.embeddings import NAME, EmbeddingsRequest, embeddings
from app.api.errors import ApiError
from app.api.requests import ChatRequest, CompletionRequest, Sampled, read
from app.api.responses import ResponseAnswer, ResponsesRequest
from app.api.slots import Slots
from py_core.backend_errors import BackendError
from py_core.display import one_line
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError, SentenceEmbedder

Answer = ChatAnswer | CompletionAnswer | ResponseAnswer
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reply:
    """What a request gets. body: UTF-8, or the events of a stream as they come."""

    status: int
    body: bytes | AsyncGenerator[str]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Asked:
    """An answer that may begin."""

    answer: Answer
    sampled: Sampled


class Door:
    """Answers requests with one model. `slots`: the answers that run and wait."""

    def __init__(self, model: Callable[[], Model], embedder: Callable[[], SentenceEmbedder], slots: Slots) -> None:
        """model: raises BackendError if none runs yet. embedder: raises EmbedderError if there is none."""
        self.slots, self._model, self._embedder = slots, model, embedder
        self._calls: dict[tuple[str, str], Callable[[bytes], Awaitable[_Asked | dict[str, Any]]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/responses"): self._responses,
            ("POST", "/v1/embeddings"): self._embeddings,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("GET", "/health"): self._health,
        }

    @property
    def paths(self) -> set[str]:
        """Return all paths that are answered."""
        return {path for _, path in self._calls}

    @asynccontextmanager
    async def answered(self, method: str, path: str, body: bytes) -> AsyncIterator[Reply]:
        """Answer a request. A refusal is a reply, too. Leaving the block ends a stream's answer; cancelling what waits
        for the reply ends any."""
        async with AsyncExitStack() as held:
            yield await self._reply(method, path, body, held)

    async def _reply(self, method: str, path: str, body: bytes, held: AsyncExitStack) -> Reply:
        try:
            call = self._calls.get((method, path))
            if call is None:
                raise self._not_there(method, path)
            asked = await call(body)
            if not isinstance(asked, _Asked):
                return _json(asked)
            if not asked.sampled.stream:
                async with self.slots.held(asked.sampled.n):
                    return _json(await asked.answer.whole())
            await held.enter_async_context(self.slots.held(asked.sampled.n))
            events = await held.enter_async_context(aclosing(_events(asked.answer)))
            return Reply(HTTPStatus.OK, events, {"content-type": "text/event-stream", "cache-control": "no-store"})
        except ApiError as error:
            return refusal(error)
        except (BackendError, EmbedderError) as error:
            return refusal(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE))
        except Exception as error:
            _log.exception("%s %s", method, path)
            sentence = f"Sonata failed ({type(error).__name__}): this is a mistake in it."
            return refusal(ApiError(sentence, HTTPStatus.INTERNAL_SERVER_ERROR))

    def _not_there(self, method: str, path: str) -> ApiError:
        is_known = any(path == known for _, known in self._calls)
        return ApiError(
            f"There is no {one_line(method)[:10]} {one_line(path)[:80]} here.",
            HTTPStatus.METHOD_NOT_ALLOWED if is_known else HTTPStatus.NOT_FOUND,
        )

    async def _chat(self, body: bytes) -> _Asked:
        asked = read(ChatRequest, _object(body))
        model, name = self._chosen(asked.model)
        answer = ChatAnswer(model, name, asked)
        await answer.prepare()
        return _Asked(answer, asked)

    async def _completions(self, body: bytes) -> _Asked:
        asked = read(CompletionRequest, _object(body))
        return _Asked(CompletionAnswer(*self._chosen(asked.model), asked), asked)

    async def _responses(self, body: bytes) -> _Asked:
        asked = read(ResponsesRequest, _object(body))
        model, name = self._chosen(asked.model)
        answer = ResponseAnswer(model, name, asked)
        await answer.prepare()
        return _Asked(answer, asked)

    async def _embeddings(self, body: bytes) -> dict[str, Any]:
        asked = read(EmbeddingsRequest, _object(body))
        if asked.model not in ("", NAME):
            raise _no_model(asked.model, NAME)
        return await embeddings(self._embedder(), asked)

    async def _models(self, _: bytes) -> dict[str, Any]:
        model, name = self._chosen("")
        entry = {
            "id": name, "object": "model", "created": 0, "owned_by": "sonata",
            "context_length": model.engine.context_length,
        }  # fmt: skip
        return {"object": "list", "data": [entry]}

    async def _tokenize(self, body: bytes) -> dict[str, Any]:
        asked = _object(body)
        text = asked.get("content", asked.get("prompt"))
        if not isinstance(text, str):
            raise ApiError("Give the text as `content`.", param="content")
        return {"tokens": self._model().tokenizer.encode(text)}

    async def _health(self, _: bytes) -> dict[str, Any]:
        return {"status": "ok", "running": self.slots.running, "waiting": self.slots.waiting}

    def _chosen(self, name: str) -> tuple[Model, str]:
        """Return the model and its name. Raises ApiError if `name` is another one's."""
        model = self._model()
        known = model.config.name or "sonata"
        if name and name != known:
            raise _no_model(name, known)
        return model, known


def refusal(error: ApiError) -> Reply:
    """Return the reply that says an error in OpenAI's form."""
    again = {"retry-after": "1"} if error.status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return _json(error.body(), error.status, again)


async def _events(answer: Answer) -> AsyncGenerator[str]:
    try:
        async with aclosing(answer.chunks()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                named = f"event: {chunk['type']}\n" if "type" in chunk else ""
                yield f"{named}data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
    except BackendError as error:
        yield f"data: {json.dumps(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE).body())}\n\n"
    if not isinstance(answer, ResponseAnswer):
        yield "data: [DONE]\n\n"


def _json(value: Any, status: int = HTTPStatus.OK, more: Mapping[str, str] | None = None) -> Reply:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Reply(status, text.encode("utf-8", "replace"), {"content-type": "application/json", **(more or {})})


def _object(body: bytes) -> dict[str, Any]:
    """Return the object of a body. Raises ApiError."""
    try:
        value = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError("The body is not JSON: send an object of JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise ApiError("The body is no object of JSON: send one.")
    return value


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _no_model(name: str, known: str) -> ApiError:
    return ApiError(
        f"There is no model {one_line(name)[:80]} here: this is {known}.", HTTPStatus.NOT_FOUND, param="model",
        code="model_not_found",
    )  # fmt: skip
