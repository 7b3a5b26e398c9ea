"""Tools, calls and results in a prompt: as the model's chat template writes them, or as texts if it knows none.

Definitions, arguments and results are data: `encode_chat` finds no special token in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from py_core.tokenizers.chat_template import ChatTemplate, Message, Tool
from py_core.tool_calls.definitions import ToolCall, ToolDefinition

ASKED = "If no function fits, say so in a sentence and call none."
"""Belongs into the system message if the model may choose: small models otherwise call whatever function there is
(docs/decisions/0115-function-calls.md)."""

_TAUGHT = """You may call functions. These are the functions, one a line:
{tools}
To call a function, answer only with a JSON object, and nothing else:
{{"name": "the function's name", "arguments": {{...}}}}"""
_RESULT = "The function {name} returned:\n{content}"
_PROBE, _ANSWER = "5318008", "8008135"


def calls_message(calls: Sequence[ToolCall], text: str = "") -> Message:
    """Return the assistant's message that has these calls, as OpenAI writes it, but with arguments as objects."""
    entries = [{"id": call.id, "type": "function", "function": call.entry()} for call in calls]
    return {"role": "assistant", "content": text, "tool_calls": entries}


def result_message(call: ToolCall, content: str) -> Message:
    """Return the message with what a call has returned."""
    return {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": content}


async def with_tools(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> tuple[list[Message], list[Tool]]:
    """Return messages and tools that `encode_chat` takes with this template.

    A template that does not print tools gets them in the system message, for Phi-4-mini as its field `tools`. One that
    does not print calls and results gets them as the assistant's and the user's texts; one that takes one call at a
    time gets each with its result.
    """
    told, entries = list(messages), [tool.entry() for tool in tools]
    if tools and not await template.takes_tools():
        in_field = _in_field(told, entries)
        text = await template.attempt(in_field)
        printed = text is not None and all(tool.name in text for tool in tools)
        told, entries = in_field if printed else _taught(told, entries), []
    if any(message.get("role") == "tool" or message.get("tool_calls") for message in told):
        told = await _with_calls(template, told, entries)
    return told, list(entries)


def _in_field(messages: Sequence[Message], entries: Sequence[Tool]) -> list[Message]:
    """The messages with the tools in a field of the system message."""
    text = json.dumps([entry["function"] for entry in entries], ensure_ascii=False)
    has_system = bool(messages) and messages[0].get("role") == "system"
    first = messages[0] if has_system else {"role": "system", "content": ""}
    return [{**first, "tools": text}, *messages[1 if has_system else 0 :]]


def _taught(messages: Sequence[Message], entries: Sequence[Tool]) -> list[Message]:
    """The messages with the tools in the system message."""
    lines = "\n".join(json.dumps(entry["function"], ensure_ascii=False) for entry in entries)
    text = _TAUGHT.format(tools=lines)
    first = messages[0] if messages and messages[0].get("role") == "system" else None
    said = f"{first['content']}\n\n{text}" if first else text
    return [{"role": "system", "content": said}, *messages[1 if first else 0 :]]


async def _with_calls(
    template: ChatTemplate, messages: Sequence[Message], entries: Sequence[Tool]
) -> list[Message]:  # fmt: skip
    """The messages with calls and results as the template takes them."""
    for as_text in (False, True):
        for at_once in (2, 1):
            if await _takes_calls(template, at_once, as_text):
                shaped = [_with_arguments(message, as_text) for message in messages]
                return shaped if at_once == 2 else _one_at_a_time(shaped)
    return _as_texts(messages)


async def _takes_calls(template: ChatTemplate, at_once: int, as_text: bool) -> bool:
    """True if the template prints so many calls, their results and the user's message behind them. as_text: their
    arguments are JSON texts."""
    calls = [ToolCall("add", {"n": f"{_PROBE}{number}"}, id=f"call0000{number}") for number in range(at_once)]
    results = [result_message(call, f"{_ANSWER}{number}") for number, call in enumerate(calls)]
    user, end = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
    asked = {"role": "user", "content": _PROBE[:5] + _ANSWER}
    messages = [user, _with_arguments(calls_message(calls), as_text), *results]
    wanted = [*(f"{_PROBE}{number}" for number in range(at_once)), *(f"{_ANSWER}{number}" for number in range(at_once))]
    for more, last in (([], ""), ([end, asked], str(asked["content"]))):
        text = await template.attempt([*messages, *more])
        if text is None or any(one not in text for one in (*wanted, last)):
            return False
    return True


def _with_arguments(message: Message, as_text: bool) -> Message:
    """The message with the arguments of its calls as objects, or as JSON texts."""
    if not message.get("tool_calls"):
        return message
    return {**message, "content": message.get("content") or "", "tool_calls": [
        {**call, "function": {**call["function"], "arguments": _arguments(call["function"], as_text)}}
        for call in message["tool_calls"]
    ]}  # fmt: skip


def _arguments(function: Mapping[str, Any], as_text: bool) -> Any:
    """The arguments, which OpenAI's API has as a JSON text."""
    given = function.get("arguments") or {}
    if as_text:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return json.loads(given) if isinstance(given, str) else given


def _one_at_a_time(messages: Sequence[Message]) -> list[Message]:
    """Each call in a message of its own, with its result behind it."""
    results = {message.get("tool_call_id"): message for message in messages if message.get("role") == "tool"}
    told = list[Message]()
    for message in messages:
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            for number, call in enumerate(calls):
                told.append({**message, "content": "" if number else message["content"], "tool_calls": [call]})
                if result := results.pop(call["id"], None):
                    told.append(result)
        elif message.get("role") != "tool" or results.pop(message.get("tool_call_id"), None):
            told.append(message)
    return told


def _as_texts(messages: Sequence[Message]) -> list[Message]:
    """Calls as the assistant's texts, and results as the user's."""
    told, names = list[Message](), dict[Any, str]()
    for message in messages:
        if calls := message.get("tool_calls"):
            functions = [call["function"] for call in calls]
            names |= {call.get("id"): call["function"]["name"] for call in calls}
            lines = [json.dumps({"name": one["name"], "arguments": _arguments(one, False)}, ensure_ascii=False)
                     for one in functions]  # fmt: skip
            said = "\n".join(filter(None, (message.get("content"), *lines)))
            told.append({"role": "assistant", "content": said})
        elif message.get("role") == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id"), "")
            told.append({"role": "user", "content": _RESULT.format(name=name, content=message.get("content") or "")})
        else:
            told.append(message)
    return told
