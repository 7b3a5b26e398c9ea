"""The witness log: a record a request, of what was decided and what it cost. Written in batches, kept for a while.

What it can be asked is in witness_questions.py.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from py_core.memory.errors import StoreError
from py_core.memory.records import Record, Vector
from py_core.memory.store import Store
from py_core.memory.write_batch import BatchedWriter

KIND = "witness"
MOST_AGE_SECONDS = 90 * 86400.0
MOST_ENTRIES = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class WitnessEntry:
    """A request. routing: the router's decision as JSON. stages: milliseconds of each. quality: 0 to 1, where known.

    vector: of the query, float32 (dimensions,). created: seconds since 1970.
    """

    agent: str
    backend: str
    stages: dict[str, float] = field(default_factory=dict)
    routing: dict[str, Any] = field(default_factory=dict)
    quality: float | None = None
    error: str | None = None
    vector: Vector | None = None
    id: str = ""
    created: float = 0.0

    @property
    def total_ms(self) -> float:
        return sum(self.stages.values())


class Witness:
    """The log of a store."""

    def __init__(
        self,
        store: Store,
        writer: BatchedWriter | None = None,
        *,
        most_age: float = MOST_AGE_SECONDS,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        self.store = store
        self.writer = writer or BatchedWriter(store)
        self.most_age = most_age
        self.most_entries = most_entries

    def record(self, entry: WitnessEntry) -> str:
        """Log a request; waits for nothing. Returns its id."""
        entry = replace(entry, id=entry.id or uuid.uuid4().hex, created=entry.created or self.store.clock())
        self.writer.put(_record(entry))
        return entry.id

    async def rate(self, id: str, quality: float | None) -> WitnessEntry | None:
        """Rate an answer later; quality None removes the rating. Returns None when there is no such entry."""
        if quality is not None and not 0.0 <= quality <= 1.0:
            raise StoreError("record", "witness.bad-quality", "The quality must be a number from 0 to 1.")
        await self.writer.flush()
        record = await self.store.update(KIND, id, lambda r: replace(r, body={**r.body, "quality": quality}))
        return entry_of(record) if record else None

    async def entries(self, *, since: float | None = None, limit: int | None = None) -> list[WitnessEntry]:
        """The entries, the newest first."""
        await self.writer.flush()
        records = await self.store.query(KIND, since=since, newest_first=True, limit=limit)
        return [entry_of(record) for record in records]

    async def retain(self) -> int:
        """Delete entries that are too old, and the oldest ones beyond the limit. Returns how many were deleted."""
        await self.writer.flush()
        gone = [r.id for r in await self.store.query(KIND, before=self.store.clock() - self.most_age)]
        too_many = await self.store.count(KIND) - len(gone) - self.most_entries
        if too_many > 0:
            oldest = await self.store.query(KIND, limit=len(gone) + too_many)
            gone = [record.id for record in oldest]
        if gone:
            await self.store.delete(KIND, *gone)
        return len(gone)


def entry_of(record: Record) -> WitnessEntry:
    assert record.created is not None
    values = {name: value for name, value in record.body.items() if name != "failed"}
    return WitnessEntry(id=record.id, vector=record.vector, created=record.created, **values)


def _record(entry: WitnessEntry) -> Record:
    body = asdict(replace(entry, vector=None))
    for name in ("id", "vector", "created"):
        del body[name]
    return Record(KIND, entry.id, {**body, "failed": entry.error is not None}, entry.vector, entry.created)
