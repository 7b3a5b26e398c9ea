"""Messages for a person: a code, by which other languages find their text, and the English beside it.

An error and its texts: docs/develop/errors.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_VALUE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, init=False)
class Message:
    """A sentence, several, or a few words of one. text: the English, in which {name} stands for a value. A value is a
    text, a number, a message of its own, or a list of these. str() gives the English with its values."""

    code: str
    text: str
    values: Mapping[str, Any]

    def __init__(self, code: str, text: str, /, **values: Any) -> None:
        for name, value in (("code", code), ("text", text), ("values", values)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return _VALUE.sub(lambda found: _words(self.values[found[1]]), self.text)


class UserError(Exception):
    """An error that is written for a person: its message says what to do. Any other error is a mistake in a program."""

    def __init__(self, message: Message | str, text: str = "", /, **values: Any) -> None:
        """A message, or the code, text and values of one."""
        self.message = message if isinstance(message, Message) else Message(message, text, **values)
        super().__init__(str(self.message))


def _words(value: Any) -> str:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return ", ".join(map(str, value)) if is_list else str(value)
