"""Formats untrusted values for people: short, and never a command to a terminal."""

from __future__ import annotations

import json
import re
import reprlib
import unicodedata
from typing import Any

LONGEST = 80
"""The most characters of a value in a sentence. Every name of a tensor, setting or architecture in real models fits."""

_NUMBER_BITS = 256
"""Longer whole numbers are described by their size: Python refuses to print a number of 4,301 digits or more."""


_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that reverse the direction of others: they could make one name in a list look like another."""
_JOINER = "\u200d"
MOST_PARTS = 16
"""The most parts of a character; longer ones are decoration."""
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_VISIBLE: dict[int, str | None] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), *_TURNING), "\ufffd"),
    0x7F: "\u2421",
    0x0D: None,
}


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Invisible letters and marks, besides white space, controls and formats: fillers, variation selectors."""


class _Short(reprlib.Repr):
    """A repr() that never writes a long value in full before cutting it."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxother = 2, 8, LONGEST

    def repr_str(self, value: str, level: int) -> str:
        return repr(value if len(value) <= LONGEST else value[:LONGEST])

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[:LONGEST])

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return repr(value) if bits <= _NUMBER_BITS else f"a number of {bits} bits"

    def repr_ndarray(self, value: Any, level: int) -> str:
        return self.repr_list(value.reshape(-1)[: self.maxlist + 1].tolist(), level)


_short = _Short()


def shown(value: Any) -> str:
    """A value's repr in at most LONGEST characters: texts in quotes, control characters escaped."""
    text = _short.repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def why_not_json(error: ValueError | RecursionError) -> str:
    """The reason why json.loads failed on a text of one line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def sentence_of(error: Exception) -> str:
    """The sentence by which a person is told of an error: its message, or which file could not be used."""
    if isinstance(error, IsADirectoryError):
        return f"{error.filename} is a folder: give a file."
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def whole_end(text: str, end: int) -> int:
    """The last position up to `end` that cuts no character in half: an accent, a vowel sign or the rest of an emoji
    stays with its base. For a character with more than MOST_PARTS parts, `end` itself."""
    at = end
    while max(end - MOST_PARTS, 0) < at < len(text) and _is_within(text, at):
        at -= 1
    return at if at > max(end - MOST_PARTS, 0) else end


def _is_within(text: str, at: int) -> bool:
    after = text[at]
    return (
        text[at - 1] == _JOINER
        or after == _JOINER
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or unicodedata.category(after).startswith("M")
    )


def one_line(text: str) -> str:
    """A name or title: in one line without control characters, cut after LONGEST characters."""
    words = " ".join(plain(text[: 4 * LONGEST]).split())
    return words if len(words) <= LONGEST else words[: whole_end(words, LONGEST - 3)] + "..."


def is_unseen(character: str) -> bool:
    """True if it is an invisible letter or mark, such as a filler. (Formats are not visible, either.)"""
    return _UNSEEN.match(character) is not None


def is_blank(text: str) -> bool:
    """True if nothing in a text is visible: it counts as empty."""
    return all(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf") or is_unseen(character)
        for character in text
    )


def plain(text: str) -> str:
    """A text that a terminal shows and does not obey. Control characters except newline and tab become visible ones
    (ESC is U+241B), or U+FFFD. So do characters that reverse the direction of others, and half of a surrogate pair,
    which is an undecodable byte of a file name. A carriage return, which would overwrite the line, is removed."""
    return text.translate(_VISIBLE) if _COMMANDS.search(text) else text
