"""Values from files and from elsewhere, as they are shown to people: short, and never a command to a terminal."""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST = 80
"""Characters of a value in a sentence. Every name of a tensor, a setting or an architecture of a real model fits."""

_NUMBER_BITS = 256
"""Longer whole numbers are told by their size: Python writes no number of 4,301 digits or more."""


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
