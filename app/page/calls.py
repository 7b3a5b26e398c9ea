"""The one way from the page to Python: `call(api, method, args)`.

Each public method of an api is a call, and takes its arguments by name: JSON, or bytes as they are. Names are camelCase
at the page. An async generator is a call that the page streams. Errors become plain data, too: {kind, message, details,
reason, field}. The build makes web/protocol_calls.js from the apis (app/building/page_protocol.py).
"""

from __future__ import annotations

import inspect
import json
import re
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import FunctionType
from typing import Any

from app.protocol import Failure, camel_case, to_json
from py_core.grammar.expressions import GrammarError
from py_core.messages import Message, UserError
from py_core.messages_browser import js_words


class PageCalls:
    """The calls of the apis, by their names."""

    def __init__(self, apis: Mapping[str, object]) -> None:
        self._apis = apis

    async def call(self, api: str, method: str, args: str, data: Mapping[str, bytes] | None = None) -> bytes | str:
        """args: JSON, an object; data: the arguments that are bytes. Returns the same as `answer_of`."""

        async def value() -> Any:
            given = self._begin(api, method, args, data)
            return await given if inspect.isawaitable(given) else given

        return await answer_of(value())

    async def stream(self, api: str, method: str, args: str, tell: Callable[[str], bool]) -> bytes | str:
        """Stream the values of a call: `tell` gets each as JSON, and returns True if the page still listens. If it does
        not, the call ends. Returns the same as `answer_of`."""

        async def tell_all() -> None:
            begun: AsyncGenerator[Any, None] = self._begin(api, method, args)
            async with aclosing(begun) as events:
                async for event in events:
                    if not tell(json.dumps(to_json(event))):
                        break

        return await answer_of(tell_all())

    def _begin(self, api: str, method: str, args: str, data: Mapping[str, bytes] | None = None) -> Any:
        """Raises ValueError if there is no such call, TypeError if its arguments have other names."""
        known = self._apis.get(api)
        call = calls_of(type(known)).get(method)
        if call is None:
            raise ValueError(f"There is no call {api}.{method}.")
        given = json.loads(args) | dict(data or {})
        return call(known, **{_snake_case(name): value for name, value in given.items()})


def calls_of(api: type) -> Mapping[str, FunctionType]:
    """Return the calls of an api by their names at the page: the calls of its bases first."""
    of_bases = {name: call for base in reversed(api.__mro__[:-1]) for name, call in vars(base).items()}
    return {
        camel_case(name): call
        for name, call in of_bases.items()
        if isinstance(call, FunctionType) and not name.startswith("_")
    }


async def answer_of(work: Awaitable[Any]) -> bytes | str:
    """Return the result of a call for the page: bytes as they are, else JSON, {value} or {error}."""
    try:
        value = await work
        return value if isinstance(value, bytes) else json.dumps({"value": to_json(value)})
    except Exception as error:
        more = {name: getattr(error, name, None) for name in ("reason", "field")}
        return json.dumps({"error": {**describe(error), **more}})


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def describe(error: Exception) -> dict[str, Any]:
    """Return `failure_of` as plain data."""
    return dict(to_json(failure_of(error)))


def failure_of(error: Exception) -> Failure:
    """Return the failure, without details if the message is a sentence for the user."""
    kind = type(error).__name__
    if isinstance(error, EOFError):
        return Failure("GGUFError", Message("gguf.ends-early", "The model file is truncated: {why}", why=error), None)
    if isinstance(error, UserError):
        return Failure(kind, error.message, None)
    if isinstance(error, GrammarError):
        return Failure(kind, str(error), None)
    if kind == "JsException" and getattr(error, "name", "") == "Error":  # our own (weight_stream.js, executor.js)
        return Failure(kind, js_words(error), None)
    message = traceback.format_exception_only(error)[-1].strip()
    return Failure(kind, message, "".join(traceback.format_exception(error)))
