"""Rows in plain memory: for tests, and when nothing can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from py_core.store.errors import StoreError
from py_core.store.rows import EVERYTHING, LAYOUT, UNCOMPACTED, Batch, Key, OnChange, Query, Row, check_expectations


class VolatileRows:
    """See `Rows`. Gone when the program ends."""

    persistent = False
    place = "memory only"

    def __init__(self, meta: Mapping[str, str] | None = None) -> None:
        """meta: of other rows that these rows continue."""
        self._rows: dict[Key, Row] = {}
        self._meta = {"schema": str(LAYOUT), "revision": "0", **(meta or {})}
        self._closed = self._locked = False

    async def meta(self) -> dict[str, str]:
        self._refuse_closed()
        return dict(self._meta)

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        self._refuse_closed()
        return [self._rows[key] for key in keys if key in self._rows]

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        self._refuse_closed()
        keys = (key for key in self._rows if kind in (None, key[0]) and (after is None or key > after))
        return [self._rows[key] for key in sorted(keys)[:limit]]

    async def query(self, query: Query) -> list[Row]:
        self._refuse_closed()
        found = [
            row
            for row in self._rows.values()
            if row.kind == query.kind
            and (query.since is None or row.created >= query.since)
            and (query.before is None or row.created < query.before)
            and query.matches(dict(row.fields))
        ]
        found.sort(key=lambda row: (row.created, row.id), reverse=query.newest_first)
        return found[: query.limit]

    async def count(self, kind: str | None) -> int:
        self._refuse_closed()
        return sum(kind in (None, key[0]) for key in self._rows)

    async def apply(self, batch: Batch) -> int:
        self._refuse_closed()
        check_expectations(batch, self._meta, {key: row.version for key, row in self._rows.items()})
        revision = int(self._meta["revision"]) + 1
        if batch.clear is not None:
            kept = {} if batch.clear == EVERYTHING else {k: r for k, r in self._rows.items() if k[0] != batch.clear}
            self._rows = kept
        for key in batch.deletes:
            self._rows.pop(key, None)
        self._rows.update({row.key: replace(row, version=revision) for row in batch.puts})
        for name, value in batch.meta.items():
            if value is None:
                self._meta.pop(name, None)
            else:
                self._meta[name] = value
        self._meta["revision"] = str(revision)
        return revision

    async def poll(self) -> bool:
        return False

    def listen(self, heard: OnChange | None) -> None:
        pass

    async def check_room(self) -> None:
        pass

    async def was_locked(self) -> bool:
        return self._locked

    async def note_locked(self, locked: bool) -> None:
        self._locked = locked

    async def compact(self) -> None:
        self._meta.pop(UNCOMPACTED, None)

    async def close(self) -> None:
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("closed")
