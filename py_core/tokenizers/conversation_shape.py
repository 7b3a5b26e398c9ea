"""Reshapes a conversation for a model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Message = Mapping[str, Any]
"""At least {"role": ..., "content": ...}."""

_BETWEEN = "\n\n"


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Remove system messages and put their texts before the first user message, which must exist."""
    system = [message for message in messages if message.get("role") == "system"]
    others = [message for message in messages if message.get("role") != "system"]
    if not any(message.get("role") == "user" for message in others):
        others.insert(0, {"role": "user", "content": ""})
    first = next(index for index, message in enumerate(others) if message.get("role") == "user")
    return [*others[:first], _joined([*system, others[first]], others[first]), *others[first + 1 :]]


def merge_repeats(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive messages of one role."""
    out: list[Message] = list(messages[:1])
    for before, message in pairwise(messages):
        if before.get("role") == message.get("role"):
            out[-1] = _joined([out[-1], message], out[-1])
        else:
            out.append(message)
    return out


def _joined(messages: Sequence[Message], like: Message) -> Message:
    texts = [str(message.get("content") or "") for message in messages]
    return {**like, "content": _BETWEEN.join(filter(None, texts))}
