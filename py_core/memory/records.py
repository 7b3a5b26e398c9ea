"""Records, and how they become bytes: JSON in UTF-8 for the body, little-endian float32 for the vector."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from py_core.memory.errors import StoreError
from py_core.memory.rows import FieldValue, Key

Vector = np.ndarray
"""float32 (dimensions,)"""

LONGEST_NAME = 200

INDEXED: Mapping[str, tuple[str, ...]] = {
    "pattern": ("agent",),
    "policy": ("source",),
    "turn": ("session",),
    "witness": ("agent", "backend", "failed", "quality"),
}
"""Fields of the body that `Store.query` can ask for, by kind. A new one needs a migration (migrations.py)."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One thing that is remembered. (kind, id) is unique; the body is a JSON object.

    created, updated: seconds since 1970; None is the time of writing. version: the revision that it was read at, for
    `Transaction.expect`; what is given when it is written does not matter.
    """

    kind: str
    id: str
    body: dict[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    created: float | None = None
    updated: float | None = None
    version: int = 0

    @property
    def key(self) -> Key:
        return self.kind, self.id

    def __eq__(self, other: object) -> bool:
        """The same content; the version does not count."""
        if not isinstance(other, Record):
            return NotImplemented
        mine = (self.key, self.body, self.created, self.updated)
        if mine != (other.key, other.body, other.created, other.updated):
            return False
        if self.vector is None or other.vector is None:
            return self.vector is other.vector
        return np.array_equal(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]


def check_name(name: str, what: str) -> None:
    """Kinds and ids are text of 1 to LONGEST_NAME characters, all printable."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise StoreError("record", f"A record's {what} is printable text of 1 to {LONGEST_NAME} characters.")


def check_time(seconds: float) -> None:
    if not math.isfinite(seconds):
        raise StoreError("record", "A record's time is a finite number of seconds.")


def encode_body(body: dict[str, Any]) -> bytes:
    if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
        raise StoreError("record", "A record's body is a JSON object: a dictionary with text as its keys.")
    try:
        return json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError("record", f"A record's body must be JSON ({error}).") from error


def decode_body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError("damaged") from error
    if not isinstance(body, dict):
        raise StoreError("damaged")
    return body


def encode_vector(vector: Vector) -> bytes:
    array = np.asarray(vector, dtype="<f4")
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise StoreError("record", "A record's vector is a row of finite float32 numbers.")
    return array.tobytes()


def decode_vector(data: bytes) -> Vector:
    if not data or len(data) % 4:
        raise StoreError("damaged")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def index_fields(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, FieldValue]:
    """The body's fields that can be searched for: text, and finite numbers as floats (True is 1.0)."""
    fields: dict[str, FieldValue] = {}
    for name in names:
        value = body.get(name)
        if isinstance(value, str):
            if value.isprintable() and len(value) <= LONGEST_NAME:
                fields[name] = value
        elif isinstance(value, bool | int | float) and abs(value) <= 1e300:
            fields[name] = float(value)
    return fields
