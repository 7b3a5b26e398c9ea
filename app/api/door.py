"""The API without a server: a request of any client in, a status and JSON or server-sent events out.

The addresses are listed in app/api/openapi.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from app.api.completions import ChatAnswer, CompletionAnswer
from app.api.embeddings import NAME, EmbeddingsRequest, embeddings
from app.api.errors import ApiError
from app.api.event_stream import events_of
from app.api.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    LessonRequest,
    LessonsRequest,
    Sampled,
    TokenizeRequest,
    read,
)  # fmt: skip
from app.api.responses import ResponseAnswer, ResponsesRequest
from app.api.slots import Slots
from app.api.totals import Totals
from py_core.backend_errors import BackendError
from py_core.display import one_line
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.tokenizers.aside import encode_aside
from py_core.tokenizers.prompts import framed

if TYPE_CHECKING:
    from app.api.lessons import LessonAnswer, LessonMemory

_log = logging.getLogger(__name__)
_MOST_ENCODED = 1_000_000
"""Characters of a text that only its tokens are wanted of."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request. body: UTF-8, or the events of a stream as they come."""

    status: int
    body: bytes | AsyncGenerator[str]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Asked:
    """An answer that may begin."""

    answer: ChatAnswer | CompletionAnswer | ResponseAnswer | LessonAnswer
    sampled: Sampled


class Door:
    """Answers requests with one model. `slots`: the answers that run and wait. `totals`: what those took that ended."""

    def __init__(
        self, model: Callable[[], Model], embedder: Callable[[], SentenceEmbedder], slots: Slots,
        memories: Mapping[str, LessonMemory] | None = None,
    ) -> None:  # fmt: skip
        """model: raises BackendError if none runs yet. embedder: raises EmbedderError if there is none. memories: those
        that requests may name."""
        self.slots, self.totals, self._model, self._embedder = slots, Totals(), model, embedder
        self._memories = {} if memories is None else memories
        self._running = set[_Asked]()
        self._calls: dict[tuple[str, str], Callable[[bytes], Awaitable[_Asked | dict[str, Any]]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/responses"): self._responses,
            ("POST", "/v1/embeddings"): self._embeddings,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/sonata/lessons"): self._teach,
            ("GET", "/v1/sonata/lessons"): self._lessons,
            ("DELETE", "/v1/sonata/lessons"): self._forget,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("GET", "/health"): self._health,
            ("GET", "/openapi.json"): self._openapi,
        }

    @property
    def paths(self) -> set[str]:
        """Return all paths that are answered."""
        return {path for _, path in self._calls}

    @asynccontextmanager
    async def answered(self, method: str, path: str, body: bytes) -> AsyncIterator[Reply]:
        """Answer a request. path: may have a query, with the fields of a request that has no body. A refusal is a
        reply, too. Leaving the block ends a stream's answer; cancelling what waits for the reply ends any."""
        path, _, query = path.partition("?")
        if method in ("GET", "DELETE"):
            body = json.dumps(dict(parse_qsl(query))).encode()
        async with AsyncExitStack() as held:
            yield await self._reply(method, path, body, held)

    def close(self) -> None:
        """Let running answers end with what they have, and refuse those that wait and those to come."""
        self.slots.close()
        for asked in self._running:
            asked.answer.stop()

    async def _reply(self, method: str, path: str, body: bytes, held: AsyncExitStack) -> Reply:
        try:
            call = self._calls.get((method, path))
            if call is None:
                raise self._not_there(method, path)
            asked = await call(body)
            if not isinstance(asked, _Asked):
                return _json(asked)
            if not asked.sampled.stream:
                async with self.slots.held(asked.sampled.n, asked.sampled.priority):
                    self._run(asked, held)
                    return _json(await asked.answer.whole())
            await held.enter_async_context(self.slots.held(asked.sampled.n, asked.sampled.priority))
            self._run(asked, held)
            events = events_of(asked.answer.chunks(), done=not isinstance(asked.answer, ResponseAnswer))
            parts = await held.enter_async_context(aclosing(events))
            return Reply(HTTPStatus.OK, parts, {"content-type": "text/event-stream", "cache-control": "no-store"})
        except ApiError as error:
            return refusal(error)
        except (BackendError, EmbedderError) as error:
            return refusal(ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE))
        except Exception as error:
            _log.exception("%s %s", method, path)
            sentence = f"Sonata failed ({type(error).__name__}): this is a mistake in it."
            return refusal(ApiError(sentence, HTTPStatus.INTERNAL_SERVER_ERROR))

    def _run(self, asked: _Asked, held: AsyncExitStack) -> None:
        """Note that an answer begins, and at the end of the stack what it took."""

        def note() -> None:
            self._running.discard(asked)
            self.totals.add(asked.answer.timings)

        self._running.add(asked)
        held.callback(note)

    def _not_there(self, method: str, path: str) -> ApiError:
        is_known = any(path == known for _, known in self._calls)
        return ApiError(
            f"There is no {one_line(method)[:10]} {one_line(path)[:80]} here.",
            HTTPStatus.METHOD_NOT_ALLOWED if is_known else HTTPStatus.NOT_FOUND,
        )

    async def _chat(self, body: bytes) -> _Asked:
        asked = read(ChatRequest, _object(body))
        model, name = self._chosen(asked.model)
        if memory := asked.sonata.memory:
            learned = await self._memory(memory, "sonata.memory").answer(name, asked)
            if learned is not None:
                return _Asked(learned, asked)
        answer = ChatAnswer(model, name, asked)
        await answer.prepare()
        return _Asked(answer, asked)

    async def _completions(self, body: bytes) -> _Asked:
        asked = read(CompletionRequest, _object(body))
        answer = CompletionAnswer(*self._chosen(asked.model), asked)
        await answer.prepare()
        return _Asked(answer, asked)

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

    async def _teach(self, body: bytes) -> dict[str, Any]:
        asked = read(LessonRequest, _object(body))
        return await self._memory(asked.memory).teach(asked)

    async def _lessons(self, body: bytes) -> dict[str, Any]:
        asked = read(LessonsRequest, _object(body))
        return {"object": "list", "data": await self._memory(asked.memory).lessons()}

    async def _forget(self, body: bytes) -> dict[str, Any]:
        asked = read(LessonsRequest, _object(body))
        return await self._memory(asked.memory).forget(asked.id)

    async def _tokenize(self, body: bytes) -> dict[str, Any]:
        asked = read(TokenizeRequest, _object(body))
        text = asked.prompt if asked.content is None else asked.content
        if text is None:
            raise ApiError("Give the text as `content`.", param="content")
        if len(text) > _MOST_ENCODED:
            sentence = (
                f"`content` has {len(text):,} characters, and may have at most {_MOST_ENCODED:,}: send it in parts."
            )
            raise ApiError(sentence, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, param="content")
        model = self._model()
        tokens = await encode_aside(model.tokenizer, [(text, asked.add_special)])
        return {"tokens": framed(model.tokenizer, tokens, bos=model.bos) if asked.add_special else tokens}

    async def _detokenize(self, body: bytes) -> dict[str, Any]:
        asked, model = read(DetokenizeRequest, _object(body)), self._model()
        if not all(0 <= token < model.config.vocab_size for token in asked.tokens):
            raise ApiError(
                f"`tokens` are not of this model: its are below {model.config.vocab_size:,}.", param="tokens"
            )
        return {"content": model.tokenizer.decode(asked.tokens)}

    async def _health(self, _: bytes) -> dict[str, Any]:
        return {"status": "ok", "running": self.slots.running, "waiting": self.slots.waiting}

    async def _openapi(self, _: bytes) -> dict[str, Any]:
        from app.api.openapi import openapi  # late: few clients read it

        return openapi()

    def _memory(self, name: str, param: str = "memory") -> LessonMemory:
        """Raises ApiError if no memory of this name is open."""
        if name not in self._memories:
            raise ApiError(
                f"No memory {one_line(name)[:40]} is open here: start the server with --memory and its name.",
                HTTPStatus.NOT_FOUND, param=param,
            )  # fmt: skip
        return self._memories[name]

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


def _json(value: Any, status: int = HTTPStatus.OK, more: Mapping[str, str] | None = None) -> Reply:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Reply(status, text.encode("utf-8", "replace"), {"content-type": "application/json", **(more or {})})


def _object(body: bytes) -> dict[str, Any]:
    """Return the object of a body. Raises ApiError."""
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_no_number)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a character (a lone surrogate)
    except (ValueError, RecursionError):
        raise ApiError("The body is not JSON: send an object of JSON in UTF-8, with whole characters.") from None
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
