"""Records, and their conversion to bytes: JSON in UTF-8 for the body, little-endian float32 for the vector."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from py_core.store.errors import StoreError
from py_core.store.rows import FieldValue, Key

Vector: TypeAlias = "np.ndarray"
"""float32 (dimensions,)"""

LONGEST_NAME = 200
DEEPEST = 50  # the deepest nesting of lists and objects


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One thing that is remembered. (kind, id) is unique; the body is a JSON object.

    created, updated: seconds since 1970; None is the time of writing. version: the revision at which it was read, for
    `Transaction.expect`; it is ignored when the record is written.
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
        """True if the content is the same; the version does not count."""
        if not isinstance(other, Record):
            return NotImplemented
        mine = (self.key, self.body, self.created, self.updated)
        if mine != (other.key, other.body, other.created, other.updated):
            return False
        if self.vector is None or other.vector is None:
            return self.vector is other.vector
        return np.array_equal(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]


def is_name(name: Any) -> bool:
    """True if a record can have this kind or id."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def check_name(name: str) -> None:
    """Check a kind or id: text of 1 to LONGEST_NAME characters, all printable."""
    if not is_name(name):
        raise StoreError(
            "record",
            "record.name",
            "The kind and the id of a record must be printable text of 1 to {most} characters.",
            most=LONGEST_NAME,
        )


def check_time(seconds: float) -> None:
    if not math.isfinite(seconds):
        raise StoreError("record", "record.time", "A record's time must be a finite number of seconds.")


def encode_body(body: dict[str, Any]) -> bytes:
    if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
        raise StoreError(
            "record", "record.no-object", "A record's body must be a JSON object: a dictionary with text as its keys."
        )
    try:
        data = json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError("record", "record.no-json", "A record's body must be JSON ({why}).", why=error) from error
    if _is_too_deep(data):
        raise StoreError(
            "record",
            "record.deep",
            "A record's body must have at most {most} levels of lists and objects.",
            most=DEEPEST,
        )
    return data


def decode_body(data: bytes) -> dict[str, Any]:
    """Raises StoreError("damaged") if the data is not a JSON object, or has NaN, Infinity or too many levels."""
    body = _decode(data)
    if not isinstance(body, dict):
        raise StoreError("damaged")
    return body


def decode_list(data: bytes) -> list[Any]:
    """Decode a JSON list, as decode_body does for an object."""
    entries = _decode(data)
    if not isinstance(entries, list):
        raise StoreError("damaged")
    return entries


def _decode(data: bytes) -> Any:
    if _is_too_deep(data):
        raise StoreError("damaged")  # before a parser goes that deep: Pyodide's stack is small
    try:
        return _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        raise StoreError("damaged") from error


def _is_too_deep(data: bytes) -> bool:
    """True if the lists and objects of a JSON text are nested more than DEEPEST levels deep."""
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False  # nearly all are
    depth = 0
    for bracket in re.findall(rb"[\[{\]}]", re.sub(rb'"(?:[^"\\]++|\\.)*+"', b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEEPEST:
            return True
    return False


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def encode_vector(vector: Vector) -> bytes:
    array = np.asarray(vector, dtype="<f4")
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise StoreError("record", "record.vector", "A record's vector must be a row of finite float32 numbers.")
    return array.tobytes()


def decode_vector(data: bytes) -> Vector:
    """Raises StoreError("damaged") if the data is not a row of finite float32 numbers."""
    if not data or len(data) % 4:
        raise StoreError("damaged")
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        raise StoreError("damaged")
    return vector


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
