"""OpenAI's newer form of a chat: /v1/responses. Nothing is stored, so each request brings its whole conversation."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from typing import Any

from app.api.completions import ChatAnswer
from app.api.errors import ApiError
from app.api.logprobs import chat_logprobs
from app.api.requests import ChatRequest, Sampled
from py_core.engine.engine import Timings
from py_core.loading import Model

_ROLES = ("system", "developer", "user", "assistant")
_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True)
class ResponsesRequest(Sampled):
    """A request of /v1/responses."""

    input: str | list[Any] = ""
    instructions: str = ""
    max_output_tokens: int | None = None
    text: dict[str, Any] = field(default_factory=dict)
    tools: list[Any] = field(default_factory=list)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    include: list[str] = field(default_factory=list)
    top_logprobs: int | None = None

    @property
    def likeliest(self) -> int | None:
        return (self.top_logprobs or 0) if _LOGPROBS in self.include or self.top_logprobs else None

    def chat(self) -> ChatRequest:
        """Return the same request as one of a chat. Raises ApiError."""
        if self.previous_response_id is not None:
            raise ApiError(
                "No response is stored here: send the whole conversation as `input`.", param="previous_response_id"
            )
        given = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        messages = [{"role": "system", "content": self.instructions}] if self.instructions else []
        for at, item in enumerate(given):
            _add(messages, item, f"input[{at}]")
        form = self.text.get("format")
        if isinstance(form, Mapping) and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": form}
        shared = {one.name: getattr(self, one.name) for one in fields(Sampled)}
        shared["max_tokens"] = self.max_output_tokens or self.max_tokens
        return ChatRequest(
            **shared, messages=messages, response_format=form, tools=self.tools, tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls, logprobs=self.likeliest is not None,
            top_logprobs=self.likeliest or 0,
        )  # fmt: skip


def _add(messages: list[dict[str, Any]], item: Any, place: str) -> None:
    """Add an item of the input to the messages of a chat."""
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if kind == "message" and item.get("role") in _ROLES:
        messages.append({"role": item["role"], "content": item.get("content")})
    elif kind == "function_call" and all(isinstance(item.get(key), str) for key in ("call_id", "name", "arguments")):
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        last = messages[-1] if messages else {}
        if last.get("role") == "assistant":
            last.setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    elif kind == "function_call_output" and isinstance(item.get("call_id"), str):
        output = item.get("output")
        content = output if isinstance(output, str | list) else json.dumps(output)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind != "reasoning":  # a model's own thoughts are not read again
        raise ApiError(
            f"{place} is a message with a role, a function_call or a function_call_output with its call_id.",
            param=place,
        )


class ResponseAnswer:
    """The answer to one request, like ChatAnswer."""

    def __init__(self, model: Model, name: str, request: ResponsesRequest) -> None:
        """Raises ApiError if the request cannot be kept."""
        self._chat = ChatAnswer(model, name, request.chat())
        self._output = list[dict[str, Any]]()
        self._response: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(12)}", "object": "response", "created_at": int(time.time()), "model": name,
            "status": "in_progress", "error": None, "incomplete_details": None, "output": self._output,
            "instructions": request.instructions or None, "parallel_tool_calls": request.parallel_tool_calls,
            "temperature": request.temperature, "top_p": request.top_p, "tool_choice": request.tool_choice or "auto",
            "tools": request.tools, "text": request.text or {"format": {"type": "text"}}, "metadata": {}, "usage": None,
        }  # fmt: skip

    async def prepare(self) -> None:
        """As ChatAnswer.prepare."""
        await self._chat.prepare()

    def stop(self) -> None:
        """As ChatAnswer.stop."""
        self._chat.stop()

    @property
    def timings(self) -> list[Timings]:
        """As ChatAnswer.timings."""
        return self._chat.timings

    async def whole(self) -> dict[str, Any]:
        """Return the object `response`. Raises BackendError."""
        async with aclosing(self._told()) as events:  # type: ignore[type-var]
            async for _ in events:
                pass
        return self._response

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a stream, each with its `type`. Raises BackendError."""
        number = 0
        async with aclosing(self._told()) as events:  # type: ignore[type-var]
            async for event in events:
                yield {**event, "sequence_number": number}
                number += 1

    async def _told(self) -> AsyncIterator[dict[str, Any]]:
        response = self._response
        for kind in ("created", "in_progress"):
            yield {"type": f"response.{kind}", "response": {**response, "output": []}}
        async with aclosing(self._chat.deltas()) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                for call in delta.get("tool_calls", ()):
                    for event in self._end_text():
                        yield event
                    for event in self._call(call):
                        yield event
                if thought := delta.get("reasoning_content"):
                    for event in self._add_text("reasoning", thought):
                        yield event
                entries = chat_logprobs(delta.get("logprobs", ()))
                if (text := delta.get("content", "")) or ("content" in delta and entries):
                    for event in self._add_text("message", text, entries):
                        yield event
        for event in self._end_text():
            yield event
        usage = self._chat.usage()
        response["usage"] = {
            "input_tokens": usage["prompt_tokens"], "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }  # fmt: skip
        is_whole = self._chat.choices[0].reason != "length"
        response["status"] = "completed" if is_whole else "incomplete"
        if not is_whole:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        yield {"type": f"response.{response['status']}", "response": response}

    def _add_text(self, kind: str, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """Add a piece to the last item, or to a new one if that is of another kind. logprobs: those of a message."""
        part, events = "output_text" if kind == "message" else "reasoning_text", list[dict[str, Any]]()
        if not (self._output and self._output[-1]["type"] == kind and self._output[-1]["status"] == "in_progress"):
            events += self._end_text()
            item: dict[str, Any] = {"id": f"{kind[:3]}_{secrets.token_hex(9)}", "type": kind, "status": "in_progress"}
            item[("role" if kind == "message" else "summary")] = "assistant" if kind == "message" else []
            item["content"] = []
            self._output.append(item)
            events.append(self._of_item("response.output_item.added", item={**item, "content": []}))
            more: dict[str, Any] = {"annotations": [], "logprobs": []} if kind == "message" else {}
            item["content"].append({"type": part, "text": "", **more})
            events.append(self._of_part("response.content_part.added", part=item["content"][0] | more))
        content = self._output[-1]["content"][0]
        content["text"] += text
        more = {"logprobs": list(logprobs)} if kind == "message" else {}
        if logprobs:
            content["logprobs"] = [*content["logprobs"], *logprobs]
        return [*events, self._of_part(f"response.{part}.delta", delta=text, **more)]

    def _end_text(self) -> list[dict[str, Any]]:
        if not self._output or self._output[-1]["status"] != "in_progress":
            return []
        item = self._output[-1]
        item["status"], part = "completed", item["content"][0]
        more = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
        return [
            self._of_part(f"response.{part['type']}.done", text=part["text"], **more),
            self._of_part("response.content_part.done", part=part),
            self._of_item("response.output_item.done", item=item),
        ]

    def _call(self, call: Mapping[str, Any]) -> list[dict[str, Any]]:
        function = call["function"]
        item = {
            "id": f"fc_{secrets.token_hex(9)}", "type": "function_call", "status": "completed", "call_id": call["id"],
            "name": function["name"], "arguments": function["arguments"],
        }  # fmt: skip
        self._output.append(item)
        begun = {**item, "status": "in_progress", "arguments": ""}
        kind, id = "response.function_call_arguments", {"item_id": item["id"]}
        return [
            self._of_item("response.output_item.added", item=begun),
            self._of_item(f"{kind}.delta", delta=item["arguments"], **id),
            self._of_item(f"{kind}.done", arguments=item["arguments"], name=item["name"], **id),
            self._of_item("response.output_item.done", item=item),
        ]

    def _of_item(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "output_index": len(self._output) - 1, **more}

    def _of_part(self, kind: str, **more: Any) -> dict[str, Any]:
        return self._of_item(kind, item_id=self._output[-1]["id"], content_index=0, **more)
