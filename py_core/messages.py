"""Messages for a person: a code, by which translations are found, and the English text.

Errors and their texts: docs/develop/errors.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_VALUE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, init=False)
class Message:
    """A sentence, several, or a few words of one. text: the English, in which {name} stands for a value. A value is a
    text, a message, a UserError, or a list; anything else becomes a text. str() gives the English."""

    code: str
    text: str
    values: Mapping[str, Any]

    def __init__(self, code: str, text: str, /, **values: Any) -> None:
        plain = {name: _plain(value) for name, value in values.items()}
        for name, value in (("code", code), ("text", text), ("values", plain)):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash((self.code, str(self)))

    def __str__(self) -> str:
        return _VALUE.sub(lambda found: _words(self.values.get(found[1], found[0])), self.text)


Words = Message | str
"""Words for a person. A plain text is the same in each language: it was stored, or comes from another program."""


class UserError(Exception):
    """An error that is written for a person: its message says what to do. Any other error is a bug in a program."""

    def __init__(self, message: Message | str, text: str = "", /, **values: Any) -> None:
        """A message; or a code with its text and values; or the text of another program."""
        if not isinstance(message, Message):
            message = Message(message, text, **values) if text else Message("", message)
        self.message = message
        super().__init__(str(message))


def words_from(data: Any) -> Words:
    """Read a message from plain data, as records keep it (`asdict`); anything else becomes a text."""
    if not isinstance(data, Mapping):
        return str(data)
    return Message(data["code"], data["text"], **{name: _value_from(value) for name, value in data["values"].items()})


def words_of(error: BaseException) -> Words:
    """The words of an error."""
    return error.message if isinstance(error, UserError) else str(error) or type(error).__name__


def _value_from(data: Any) -> Any:
    return [_value_from(one) for one in data] if isinstance(data, list) else words_from(data)


def _plain(value: Any) -> Any:
    """The value in JSON types, except messages."""
    if isinstance(value, UserError):
        return value.message
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, Message) else str(value)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
