"""Shared by the GGUF reader and writer: value types, alignment, the error."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from py_core.display import shown
from py_core.messages import UserError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

BOOL, STRING, ARRAY = 7, 8, 9
# Value types of metadata as (id, struct code, numpy dtype).
_NUMBERS = (
    (0, "B", "<u1"),
    (1, "b", "<i1"),
    (2, "H", "<u2"),
    (3, "h", "<i2"),
    (4, "I", "<u4"),
    (5, "i", "<i4"),
    (6, "f", "<f4"),
    (BOOL, "B", "<u1"),
    (10, "Q", "<u8"),
    (11, "q", "<i8"),
    (12, "d", "<f8"),
)
SCALARS: dict[int, struct.Struct] = {value_type: struct.Struct("<" + code) for value_type, code, _ in _NUMBERS}
DTYPES: dict[int, str] = {value_type: code for value_type, _, code in _NUMBERS}


class GGUFError(UserError, ValueError):
    """Sonata cannot use this GGUF file; the message says what is wrong and what to do."""


class AdapterFileError(GGUFError):
    """The file is an adapter, but a model is expected."""


def alignment_of(metadata: Mapping[str, Any]) -> int:
    """The alignment of tensor offsets in bytes. Raises GGUFError unless it is a power of two, at least 8."""
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
        raise GGUFError(
            "gguf.alignment",
            "The GGUF file is damaged: general.alignment is {value}, but must be a power of two, 8 or more.",
            value=shown(alignment),
        )
    return alignment
