"""Writes that are done together."""

from __future__ import annotations

from py_core.store.records import Record
from py_core.store.rows import EVERYTHING, Key


class Transaction:
    """Changes that are made together, or not at all, when the `async with` block ends without an exception."""

    def __init__(self) -> None:
        self.puts: dict[Key, Record] = {}
        self.deletes: dict[Key, None] = {}
        self.expected: dict[Key, int] = {}
        self.cleared: str | None = None

    def put(self, record: Record) -> None:
        self.deletes.pop(record.key, None)
        self.puts[record.key] = record

    def delete(self, kind: str, id: str) -> None:
        self.puts.pop((kind, id), None)
        self.deletes[kind, id] = None

    def clear(self, kind: str | None = None) -> None:
        """Before everything else in this transaction, delete all records, or all of a kind."""
        self.cleared = EVERYTHING if kind is None else kind

    def expect(self, kind: str, id: str, version: int) -> None:
        """Fail with StoreError("conflict") if the record has another version by then. 0: it must not exist."""
        self.expected[kind, id] = version
