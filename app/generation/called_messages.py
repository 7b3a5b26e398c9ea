"""The calls of tools in an answer, as they are kept, and as the messages that the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from py_core.tokenizers.chat_template import Message
from py_core.tool_calls.definitions import ToolCall
from py_core.tool_calls.prompt import calls_message, result_message


@dataclass
class MadeCall:
    """A call that an answer has made. result: what the tool said, or why it failed. round: calls of the same one were
    wanted at once. at: the length of the answer's text before them."""

    name: str
    arguments: Mapping[str, Any]
    result: str = ""
    failed: bool = False
    round: int = 0
    at: int = 0

    def entry(self) -> dict[str, Any]:
        """Return the call as JSON, as a turn keeps it."""
        return asdict(self)


def made_calls(entries: Sequence[Mapping[str, Any]]) -> list[MadeCall]:
    """Read what a turn keeps. Raises KeyError, TypeError or AttributeError if it is damaged."""
    return [
        MadeCall(
            str(one["name"]), dict(one["arguments"]), str(one["result"]), bool(one["failed"]), int(one["round"]),
            int(one["at"]),
        )
        for one in entries
    ]  # fmt: skip


def said_messages(text: str, calls: Sequence[MadeCall], first: int) -> list[Message]:
    """Return an answer with calls as messages: for each round the text before it with its calls, and their results;
    then the rest of the text. first: the number of the first call's id, different for each call of a prompt."""
    messages, said = list[Message](), 0
    for number in dict.fromkeys(call.round for call in calls):
        made = [
            (call, ToolCall(call.name, dict(call.arguments), id=f"call{first + place:05}"))
            for place, call in enumerate(calls)
            if call.round == number
        ]
        until = max(call.at for call, _ in made)
        messages.append(calls_message([called for _, called in made], text[said:until].strip()))
        messages += [result_message(called, told_result(call)) for call, called in made]
        said = until
    if rest := text[said:].strip():
        messages.append({"role": "assistant", "content": rest})
    return messages


def told_result(call: MadeCall) -> str:
    """Return what the model reads of a call's result."""
    return f"Error: {call.result}" if call.failed else call.result


def count_calls(messages: Sequence[Message]) -> int:
    """Return the number of calls in messages."""
    return sum(len(message.get("tool_calls") or ()) for message in messages)
