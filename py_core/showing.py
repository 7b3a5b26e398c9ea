"""Values from files and from elsewhere, as they are shown to people: short, and never a command to a terminal."""

from __future__ import annotations

import json
import re
import reprlib
import unicodedata
from typing import Any

LONGEST = 80
"""Characters of a value in a sentence. Every name of a tensor, a setting or an architecture of a real model fits."""

_NUMBER_BITS = 256
"""Longer whole numbers are told by their size: Python writes no number of 4,301 digits or more."""


_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the order of the others around: a name in a list could look like another one."""
_JOINER = "\u200d"
MOST_PARTS = 16
"""Of a character; longer ones are decoration."""
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
"""Letters and marks that are never seen, beside white space, controls and formats: fillers, selectors of variants."""


class _Short(reprlib.Repr):
    """repr() that never writes a long value in full before it cuts it."""

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
    """A value as Python writes it, in at most LONGEST characters: texts in quotes, control characters escaped."""
    text = _short.repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def why_not_json(error: ValueError | RecursionError) -> str:
    """What json.loads found wrong with a text of one line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def whole_end(text: str, end: int) -> int:
    """The last place up to an end at which no character is cut in half: an accent, a vowel sign or the rest of an emoji
    stays with what it belongs to. Of what has more than MOST_PARTS of them the end itself."""
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
    """Whether it is a letter or a mark that is never seen, such as a filler. (Formats are not seen, either.)"""
    return _UNSEEN.match(character) is not None


def is_blank(text: str) -> bool:
    """Whether nothing of a text is seen: it counts as empty."""
    return all(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf") or is_unseen(character)
        for character in text
    )


def plain(text: str) -> str:
    """A text that a terminal shows and does not obey: control characters but newline and tab become visible ones
    (ESC is U+241B), or U+FFFD, and so do those that turn the order of the others around, and half of a surrogate pair,
    which is a byte of a file's name that is no text.
    A carriage return, which would write over the line, is left out."""
    return text.translate(_VISIBLE) if _COMMANDS.search(text) else text
