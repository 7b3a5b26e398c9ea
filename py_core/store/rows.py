"""Row storage: the protocol that SQLite, IndexedDB and plain memory implement. It knows bytes, not records.

Encoding, encryption, queries of encrypted data, notifications and migrations are the same for all of them and are in
store.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from py_core.store.errors import StoreError

Key = tuple[str, str]
"""(kind, id)"""

LAYOUT = 9
"""The version of the tables, object stores and records of a new database. `Kind.migrations` bring records to the next.

1  records, found by kind, id and time
2  records are found by fields of their body as well (Kind.indexed): each is written again, with its fields
3  patterns have the weight that the router learns (0.5 to 2), not half of it under the name quality
4  encrypted memories have a ledger (ledger.py)
5  policies tell how many observations they were made of, and when
6  conversations are trees (branches.py): turns tell which one they follow, conversations what is shown of them
7  lessons keep the answer that was corrected
8  why a training was kept or refused may be a message (py_core/messages.py)
9  an answer has one record: its trajectory has what its log entry told
"""

EVERYTHING = "*"
"""For `Batch.clear`."""

UNCOMPACTED = "uncompacted"
"""In meta while the files may still hold data that was since encrypted or deleted: `compact` has not succeeded yet."""

BLOB = "index"
"""The kind of rows whose body is bytes, not a record: Store.put_blob."""

CHUNK = 1000
"""The number of rows that are read at once."""

ATTEMPTS = 20
"""How often a write is tried that conflicts with other writes."""

MENDED_REVISION = 2**40
"""Replaces a revision that cannot be read: larger than any database's."""
MOST_DIGITS = 16  # what JavaScript can hold

NAMELESS = "\0"
"""The prefix of the id that stands for a row whose kind or id is not text. The row can be deleted by it, not put."""

UNKNOWN_TIME = -1.0
"""Replaces an invalid time. No record with it can be read (field_checks.py)."""

FieldValue = str | float


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it is stored. `fields`: the values by which it is found, in the clear. Times are seconds since 1970.

    `version` is the database's revision when the row was written.
    """

    kind: str
    id: str
    created: float
    updated: float
    body: bytes
    vector: bytes | None = None
    fields: tuple[tuple[str, FieldValue], ...] = ()
    version: int = 0

    @property
    def key(self) -> Key:
        return self.kind, self.id


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from low to high, both included."""

    low: float = -sys.float_info.max
    high: float = sys.float_info.max

    def holds(self, value: FieldValue) -> bool:
        return not isinstance(value, str) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Query:
    """Rows of one kind, oldest first by `created` (then id). Each field must have the value, or be in the range.

    limit: at least 1."""

    kind: str
    where: Mapping[str, FieldValue | Range] = field(default_factory=dict)
    since: float | None = None
    before: float | None = None
    newest_first: bool = False
    limit: int | None = None

    def matches(self, fields: Mapping[str, FieldValue]) -> bool:
        """True if fields match the query."""
        return all(
            name in fields and (wanted.holds(fields[name]) if isinstance(wanted, Range) else fields[name] == wanted)
            for name, wanted in self.where.items()
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction, all or nothing: expectations, then `clear`, `deletes`, `puts` and `meta`, in this order.

    clear: a kind, or EVERYTHING (but not meta). meta: None removes a value. expect_meta: a different value means
    StoreError("changed"). expect_versions: a row with a different version (0: there is none) means
    StoreError("conflict").
    """

    puts: Sequence[Row] = ()
    deletes: Sequence[Key] = ()
    clear: str | None = None
    meta: Mapping[str, str | None] = field(default_factory=dict)
    expect_meta: Mapping[str, str | None] = field(default_factory=dict)
    expect_versions: Mapping[Key, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a batch. `elsewhere`: another tab or process made them; its puts may be unknown (`everything`)."""

    puts: tuple[Key, ...] = ()
    deletes: tuple[Key, ...] = ()
    cleared: str | None = None
    elsewhere: bool = False
    everything: bool = False


OnChange = Callable[[Change], None]


class Rows(Protocol):
    """Every method may raise StoreError. Meta always has "schema" (the version of the records; LAYOUT for a new
    database) and "revision" (raised by every batch)."""

    @property
    def persistent(self) -> bool:
        """True if the rows are still there after a restart."""
        ...

    @property
    def place(self) -> str:
        """The place of the rows, in words for people."""
        ...

    async def meta(self) -> dict[str, str]: ...

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        """The rows that exist, in the order of `keys`."""
        ...

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        """The next rows after a key, in the order of keys; [] at the end."""
        ...

    async def query(self, query: Query) -> list[Row]: ...

    async def count(self, kind: str | None) -> int: ...

    async def apply(self, batch: Batch) -> int:
        """Apply a batch. It is durable when this returns the new revision: killing the process afterwards loses
        nothing."""
        ...

    async def poll(self) -> bool:
        """True if another process may have written since the last call without `listen` noticing."""
        ...

    def listen(self, heard: OnChange | None) -> None:
        """Call `heard` with the changes of other tabs."""
        ...

    async def compact(self) -> None:
        """Rewrite the files without deleted or overwritten data, and remove UNCOMPACTED from meta.

        Raises StoreError("compacting"), with what is left and why, if that is not possible now. A kill in the middle
        loses nothing.
        """
        ...

    async def check_room(self) -> None:
        """Raises StoreError("room") if there is not enough space to rewrite everything, as far as that can be known."""
        ...

    async def was_locked(self) -> bool:
        """True if `note_locked` was called, even if everything in the database was removed since."""
        ...

    async def note_locked(self, locked: bool) -> None:
        """Record outside the database that it is encrypted, so that it is noticed if that is no longer true.

        Does nothing if there is no place to keep this.
        """
        ...

    async def close(self) -> None: ...


def mended_meta(meta: Mapping[str, object]) -> dict[str, str]:
    """The meta of a database that may be damaged. Migrating records that are new already changes nothing."""
    mended = {str(name): value if isinstance(value, str) else str(value) for name, value in meta.items()}
    for name, least, instead in (("schema", 1, "1"), ("revision", 0, str(MENDED_REVISION))):
        value = mended.get(name, "")
        is_number = value.isascii() and value.isdigit() and len(value) < MOST_DIGITS
        mended[name] = value if is_number and int(value) >= least else instead
    return mended


def check_expectations(batch: Batch, meta: Mapping[str, str], versions: Mapping[Key, int]) -> None:
    """Raises StoreError if something differs from what `batch` expects. versions: of the rows it names."""
    for name, wanted in batch.expect_meta.items():
        if meta.get(name) != wanted:
            raise StoreError("changed")
    for key, version in batch.expect_versions.items():
        if versions.get(key, 0) != version:
            raise StoreError("conflict")
