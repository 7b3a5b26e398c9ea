"""Answers what the page asks of the runtime: a call of one of the apis, with arguments as JSON.

Errors become plain data as well: {kind, message, details, reason, field}.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

from app.protocol import Failure, to_json
from py_core.messages import Message, UserError
from py_core.messages_browser import js_words


class PageCalls:
    """apis: by their names; each public method of one is a call, and asynchronous."""

    def __init__(self, apis: Mapping[str, object]) -> None:
        self._apis = apis

    async def answer(self, api: str, call: str, arguments: str, data: bytes | None = None) -> bytes | str:
        """Arguments: JSON, a list; `data` comes first if given. Returns JSON, {value} or {error}; bytes as they are."""
        try:
            if call.startswith("_"):
                raise ValueError(f"There is no call {call!r}.")
            given = [] if data is None else [data]
            value = await getattr(self._apis[api], call)(*given, *json.loads(arguments))
            return value if isinstance(value, bytes) else json.dumps({"value": value}, default=to_json)
        except Exception as error:
            more = {name: getattr(error, name, None) for name in ("reason", "field")}
            return json.dumps({"error": {**describe(error), **more}})


def describe(error: Exception) -> dict[str, Any]:
    """As `failure_of`, as plain data."""
    return dict(to_json(failure_of(error)))


def failure_of(error: Exception) -> Failure:
    """Without details if the message is a sentence for the user."""
    kind = type(error).__name__
    if isinstance(error, EOFError):
        return Failure("GGUFError", Message("gguf.ends-early", "the model file is truncated: {why}", why=error), None)
    if isinstance(error, UserError):
        return Failure(kind, error.message, None)
    if kind == "JsException" and getattr(error, "name", "") == "Error":  # of ours (weight_stream.js, executor.js)
        return Failure(kind, js_words(error), None)
    message = traceback.format_exception_only(error)[-1].strip()
    return Failure(kind, message, "".join(traceback.format_exception(error)))
