"""A model that runs in this process, and the calls of OpenAI's client to it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from functools import cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from app.api.door import Door
from app.api.slots import Slots
from py_core.loading import Model
from py_core.routing.embedder import EmbedderError, SentenceEmbedder

_ANSWERS, _QUEUE = 16, 256
"""As of the server: answers at a time, and requests that may wait."""


class SonataError(Exception):
    """A request that was refused; the message says what to do. status, code, param: as OpenAI's errors have them."""

    def __init__(self, error: dict[str, Any], status: int) -> None:
        super().__init__(error["message"])
        self.status, self.code, self.param = status, error.get("code"), error.get("param")


class Answer(dict[str, Any]):
    """An object of an answer: `answer.choices` is `answer["choices"]`, and a field that is not there is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask
            raise AttributeError(name)
        return self.get(name)


class Stream:
    """The parts of an answer as they come: `async for part in stream`. A program that leaves before the end closes it,
    or uses `async with`."""

    def __init__(self, events: AsyncGenerator[str], held: AsyncExitStack) -> None:
        """held: what is given back at the end."""
        self._parts, self._held = _parts(events), held

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Answer:
        """Raises SonataError if the model fails."""
        try:
            return await anext(self._parts)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the answer."""
        await self._parts.aclose()
        await self._held.aclose()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Calls:
    """The calls of one address of the API."""

    def __init__(self, door: Door, path: str) -> None:
        self._door, self._path = door, path

    async def create(self, **fields: Any) -> Any:
        """Send a request with these fields. Returns an Answer, or a Stream of them for `stream=True`. Raises
        SonataError."""
        async with AsyncExitStack() as held:
            body = json.dumps(fields).encode()
            reply = await held.enter_async_context(self._door.answered("POST", self._path, body))
            if not isinstance(reply.body, bytes):
                return Stream(reply.body, held.pop_all())
            told = json.loads(reply.body, object_hook=Answer)
            if reply.status >= HTTPStatus.BAD_REQUEST:
                raise SonataError(told["error"], reply.status)
            return told


class Sonata:
    """A model that answers in this process. `chat.completions`, `completions`, `responses` and `embeddings` have a
    `create`, which takes the fields of OpenAI's API (docs/guide/api.md)."""

    def __init__(self, model: Model, embedder: Callable[[], SentenceEmbedder]) -> None:
        """Use `load`."""
        self._model = model
        door = Door(lambda: model, cache(embedder), Slots(_ANSWERS, _QUEUE))
        self.chat = SimpleNamespace(completions=Calls(door, "/v1/chat/completions"))
        self.completions = Calls(door, "/v1/completions")
        self.responses = Calls(door, "/v1/responses")
        self.embeddings = Calls(door, "/v1/embeddings")

    @classmethod
    async def load(
        cls, model: str | os.PathLike[str] | bytes | None = None, *, backend: str = "auto", context: int | None = None,
        files: str | None = None, on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Sonata:  # fmt: skip
        """Open a model: a GGUF file, its bytes, or its address; natively also a name of `sonata models list`, and None
        for the model that Sonata comes with.

        backend: "auto", "webgpu", "wasm" or "numpy". context: the most tokens of a conversation. files: in a browser,
        the address of a folder with Sonata's site or npm package, whose kernels "webgpu" and "wasm" need; without it
        "auto" is "numpy". on_progress: called with the bytes so far and those of the file, in a browser.

        Raises UserError, GGUFError, OSError, ValueError, with a sentence that says what to do.
        """
        given = os.fspath(model) if isinstance(model, os.PathLike) else model
        if sys.platform == "emscripten":
            from sonata import browser

            if given is None:
                raise ValueError("Name a model: the address of a GGUF file, its path, or its bytes.")
            return cls(await browser.open_model(given, backend, context, files, on_progress), _no_embedder)
        from app.native_runtime import open_embedder
        from sonata import native

        return cls(await native.open_model(given, backend, context), open_embedder)

    async def close(self) -> None:
        """Give the memory of the model back."""
        self._model.close()

    async def __aenter__(self) -> Sonata:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _no_embedder() -> SentenceEmbedder:
    raise EmbedderError("There are no embeddings in a browser: run Sonata natively for them.")


async def _parts(events: AsyncGenerator[str]) -> AsyncGenerator[Answer]:
    """Yield the objects of server-sent events. Raises SonataError."""
    text = ""
    async with aclosing(events):
        async for piece in events:
            *whole, text = (text + piece).split("\n\n")
            for event in whole:
                data = next(line[6:] for line in event.split("\n") if line.startswith("data: "))
                if data == "[DONE]":
                    continue
                told = json.loads(data, object_hook=Answer)
                if told.error and not told.type:
                    raise SonataError(told.error, HTTPStatus.SERVICE_UNAVAILABLE)
                yield told
