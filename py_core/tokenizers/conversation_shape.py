"""Reshapes a conversation for a model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Message = Mapping[str, Any]
"""At least {"role": ..., "content": ...}. An assistant's may have `tool_calls`, as OpenAI writes them."""

Tool = Mapping[str, Any]
"""A tool's definition as OpenAI writes it: {"type": "function", "function": {"name": ..., ...}}."""

_BETWEEN = "\n\n"


def is_plain(message: Message) -> bool:
    """False for calls of tools and their results, which stay as they are."""
    return message.get("role") != "tool" and not message.get("tool_calls")


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Remove system messages and put their texts before the first user message, which must exist."""
    system = [message for message in messages if message.get("role") == "system"]
    others = [message for message in messages if message.get("role") != "system"]
    if not any(message.get("role") == "user" for message in others):
        others.insert(0, {"role": "user", "content": ""})
    first = next(index for index, message in enumerate(others) if message.get("role") == "user")
    return [*others[:first], _joined([*system, others[first]], others[first]), *others[first + 1 :]]


def merge_repeats(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive messages of one role, but no calls of tools and none of their results."""
    out: list[Message] = list(messages[:1])
    for before, message in pairwise(messages):
        if before.get("role") == message.get("role") and is_plain(before) and is_plain(message):
            out[-1] = _joined([out[-1], message], out[-1])
        else:
            out.append(message)
    return out


def _joined(messages: Sequence[Message], like: Message) -> Message:
    texts = [str(message.get("content") or "") for message in messages]
    return {**like, "content": _BETWEEN.join(filter(None, texts))}
