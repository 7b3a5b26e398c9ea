"""Memories that the server opens by name: their lessons answer, and are taught, listed and forgotten.

Nothing else of a request is stored, and nothing else of a memory is read.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from app.api.completions import usage_of
from app.api.errors import ApiError
from app.api.requests import ChatRequest, LessonRequest
from app.api.stop_texts import StopTexts
from app.chat.asker import Asker, SingleAnswer
from app.generation.assistant import MAX_TOKENS
from app.memory.items import MemoryItems, address
from app.runtime import Runtime
from py_core.backend_errors import ContextFullError
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError


class LessonMemory:
    """One memory. Its lessons answer one question after the other. Methods raise ApiError, BackendError."""

    def __init__(self, runtime: Runtime, model: Model) -> None:
        """runtime: open, with the model as its learner."""
        self._model, self._items = model, MemoryItems(runtime)
        self._asker = Asker(model, runtime.learning, MAX_TOKENS)
        self._turn = asyncio.Lock()

    async def answer(self, name: str, request: ChatRequest) -> LessonAnswer | None:
        """Return the answer of the lesson that answers the last message; None if none does, if the answer has to be a
        call, or if it needs a shape that the lesson's answer does not have. name: of the model."""
        last, shape = request.conversation()[-1], request.shape()
        if last["role"] != "user" or request.tool_choice not in (None, "auto", "none"):
            return None
        with _told():
            async with self._turn:
                learned = await self._asker.learned(str(last["content"]))
            if learned is None or (shape and not await self._model.engine.is_shaped(learned.text, shape)):
                return None
        return LessonAnswer(self._model, name, request, str(last["content"]), learned)

    async def teach(self, request: LessonRequest) -> dict[str, Any]:
        """Return the lesson, and the answer that it replaces."""
        with _told():
            return _entry(await self._items.remember(request.question, request.answer))

    async def lessons(self) -> list[dict[str, Any]]:
        """Return the lessons that are no history, the newest first."""
        with _told():
            listed = await self._items.listed("lessons", 0, 1 << 30)
        return [_entry(one) for one in listed["items"]]

    async def forget(self, id: str) -> dict[str, Any]:
        """Delete a lesson, with the older answers to its question."""
        with _told(HTTPStatus.NOT_FOUND):
            gone = await self._items.forget(address("lesson", id))
        return {"id": id, "object": "lesson.deleted", "deleted": True, "older_answers": gone["older_answers"]}


class LessonAnswer:
    """The answer of a lesson, like a ChatAnswer; each choice is the same."""

    def __init__(self, model: Model, name: str, request: ChatRequest, question: str, learned: SingleAnswer) -> None:
        self.timings: tuple[Timings, ...] = ()
        stops, tokenizer = StopTexts(request.stops), model.tokenizer
        text = stops.push(learned.text) + stops.flush()
        tokens = tokenizer.encode(text)
        self._reason = "stop"
        if len(tokens) > request.most_tokens:
            text, self._reason = tokenizer.decode(tokens[: request.most_tokens]), "length"
        self._request, self._text = request, text
        read, made = len(tokenizer.encode(question)), request.n * min(len(tokens), request.most_tokens)
        self._usage = usage_of(read, made, cached=0)
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}
        self._told = {"sonata": {"lesson": _lesson(learned)}}

    def stop(self) -> None:
        """Do nothing: the answer is there."""

    async def whole(self) -> dict[str, Any]:
        """Return the object `chat.completion`."""
        message = {"role": "assistant", "content": self._text}
        choices = [
            {"index": at, "message": message, "finish_reason": self._reason, "logprobs": None}
            for at in range(self._request.n)
        ]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage, **self._told}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects `chat.completion.chunk`; the last with a choice says which lesson answered."""
        head, last = {**self._head, "object": "chat.completion.chunk"}, self._request.n - 1
        for at in range(self._request.n):
            delta = {"role": "assistant", "content": self._text}
            yield {**head, "choices": [{"index": at, "delta": delta, "finish_reason": None}]}
        for at in range(self._request.n):
            ended = {**head, "choices": [{"index": at, "delta": {}, "finish_reason": self._reason}]}
            yield {**ended, **self._told} if at == last else ended
        if self._request.stream_options.include_usage:
            yield {**head, "choices": [], "usage": self._usage}


def _lesson(learned: SingleAnswer) -> dict[str, Any]:
    lesson, nearest = learned.lesson, learned.nearest
    assert lesson is not None
    told: dict[str, Any] = {"id": lesson.id, "question": lesson.question}
    if learned.read:
        told["read"] = [one.question for one in learned.read]
    elif nearest is not None:
        told["confidence"] = round(nearest.confidence, 4)
    return told


def _entry(item: dict[str, Any]) -> dict[str, Any]:
    """An entry of MemoryItems, with ids instead of addresses."""
    told = {"id": item["uri"].rpartition("/")[2], "object": "lesson", **item}
    del told["uri"]
    if told.get("replaced"):
        told["replaced"] = {"id": told["replaced"]["uri"].rpartition("/")[2], "answer": told["replaced"]["answer"]}
    return told


@contextmanager
def _told(status: int = HTTPStatus.BAD_REQUEST) -> Iterator[None]:
    """Raise the errors of a memory as ApiError. status: if the request is wrong."""
    try:
        yield
    except (StoreError, EmbedderError) as error:
        raise ApiError(str(error), HTTPStatus.SERVICE_UNAVAILABLE) from None
    except (ContextFullError, ValueError) as error:  # LessonError is a ValueError
        raise ApiError(str(error), status) from None
