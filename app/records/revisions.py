"""Runs of the background loop, and the revisions of the learned adapter that they produced.

A run is a record of the kind "consolidation" that tells people what it did. The adapter's numbers are beside it in
records of the kind "weights", in parts: so exports include them, and a passphrase encrypts them. A revision's knowledge
is gone with each of its lessons: `Lessons.delete` deletes its numbers in the same transaction.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from py_core.messages import Words, words_from
from py_core.store import field_checks as checks
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import LONGEST_NAME, Record
from py_core.store.rows import BLOB
from py_core.store.store import Store
from py_core.store.transaction import Transaction

KIND = "consolidation"
MOST_PARTS = 999  # of a revision of the learned adapter
WEIGHTS = "weights"
WORK = "consolidation/"
"""The prefix of the names of blobs that an unfinished run keeps."""
PART_BYTES = 720_000
"""The size of a part: as base64 it still fits into a record."""
KEPT_WEIGHTS = 3
"""Revisions of a model whose numbers are kept: a training may continue from an older revision."""

RunVerdict = Literal["accepted", "scaled", "refused"]


@dataclass(frozen=True)
class Run:
    """revision: of the adapter for the model file base_sha256, from 1 on; 0 if the adapter was refused. parent: the
    revision that it continued from, 0 for none. lessons: the ids of all lessons that it knows, of which `new` were new
    to it.

    on: False if the user switched it off. has_weights: False once its numbers are gone. steps: by name
    ("cross_entropy", "divergence", "penalty", "norm", "rate", "tokens") a number a step. The rest are the fields of
    `Outcome` (py_core/learning/consolidation_job.py). Times are seconds since 1970.
    """

    base_sha256: str
    verdict: RunVerdict
    why: Words
    revision: int = 0
    parent: int = 0
    scale: float = 0.0
    lessons: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    on: bool = True
    has_weights: bool = False
    model: str = ""
    backend: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    probe: Mapping[str, float] = field(default_factory=dict)
    recall: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    norm: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: float = 0.0


class Revisions:
    """The runs and revisions of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def runs(self, base_sha256: str | None = None) -> list[Run]:
        """The runs, oldest first; of one model, or of all."""
        runs = [_run(record) for record in await self._store.query(KIND)]
        return [run for run in runs if base_sha256 in (None, run.base_sha256)]

    async def keep(self, run: Run, weights: bytes | None) -> Run:
        """Store a run, and its numbers if there are any, in one transaction: the run then gets the next revision's
        number.

        The numbers of revisions older than the last KEPT_WEIGHTS are deleted, and so is the data of unfinished runs.
        """
        before = await self.runs(run.base_sha256)
        async with self._store.transaction() as transaction:
            if weights is not None:
                run = replace(run, revision=max((one.revision for one in before), default=0) + 1, has_weights=True)
                for record in _parts(run, weights):
                    transaction.put(record)
                kept = [one for one in before if one.has_weights]
                for old in kept[: max(len(kept) + 1 - KEPT_WEIGHTS, 0)]:
                    await self._drop_weights(old, transaction)
            run = replace(run, created=self._store.clock())
            transaction.put(_record(run))
            await drop_work(self._store, transaction)
        return run

    async def weights(self, run: Run) -> bytes | None:
        """The numbers of a run's revision; None if some of them are missing."""
        records = await self._store.starting_with(WEIGHTS, _prefix(run))
        if not records or len(records) != records[0].body["parts"]:
            return None
        try:
            data = b"".join(base64.b64decode(record.body["data"], validate=True) for record in records)
        except binascii.Error:
            return None
        return data if hashlib.sha256(data).hexdigest() == records[0].body["sha256"] else None

    async def switch(self, id: str, on: bool) -> Run | None:
        """Switch a revision on or off. Return None if there is no such run."""

        def change(record: Record) -> Record:
            return replace(record, body={**record.body, "on": on})

        record = await self._store.update(KIND, id, change)
        return _run(record) if record else None

    async def delete(self, *ids: str) -> None:
        """Delete runs and their numbers."""
        async with self._store.transaction() as transaction:
            for record in await self._store.get_many([(KIND, id) for id in ids]):
                transaction.delete(KIND, record.id)
                await self._drop_weights(_run(record), transaction)

    async def forget_lessons(self, ids: Collection[str], transaction: Transaction) -> None:
        """Delete the numbers of every revision that knows one of these lessons, and the data of unfinished runs."""
        for run in await self.runs():
            if run.has_weights and not set(ids).isdisjoint(run.lessons):
                await self._drop_weights(run, transaction)
        await drop_work(self._store, transaction)

    async def _drop_weights(self, run: Run, transaction: Transaction) -> None:
        for key in await self._store.keys_starting_with(WEIGHTS, _prefix(run)):
            transaction.delete(*key)
        if all(key != (KIND, run.id) for key in transaction.deletes):
            transaction.put(_record(replace(run, has_weights=False)))


async def drop_work(store: Store, transaction: Transaction) -> None:
    """Delete the data of an unfinished run."""
    for key in await store.keys_starting_with(BLOB, WORK):
        transaction.delete(*key)


def _prefix(run: Run) -> str:
    return f"{run.base_sha256[:16] or 'model'}/{run.revision:06d}/"


def fisher_blob(run: Run) -> str:
    """The name of the bytes that hold a revision's Fisher information: they are deleted with its numbers."""
    return f"{WEIGHTS}:{_prefix(run)}000/fisher"


def _parts(run: Run, data: bytes) -> list[Record]:
    sha256 = hashlib.sha256(data).hexdigest()
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    return [
        Record(
            WEIGHTS, f"{_prefix(run)}{number:03d}",
            {
                "base_sha256": run.base_sha256, "revision": run.revision, "part": number, "parts": len(parts),
                "sha256": sha256, "data": base64.b64encode(part).decode(),
            },
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip


def _record(run: Run) -> Record:
    body = asdict(run)
    for name in ("id", "created"):
        del body[name]
    return Record(
        KIND, run.id, body | {"lessons": list(run.lessons), "new": list(run.new)}, created=run.created or None
    )


def _run(record: Record) -> Run:
    assert record.created is not None
    body = record.body
    values = {"why": words_from(body["why"]), "lessons": tuple(body["lessons"]), "new": tuple(body["new"])}
    return Run(**{**body, **values}, id=record.id, created=record.created)


RUNS = Kind(
    KIND,
    ("training", "trainings"),
    {
        "base_sha256": checks.text(LONGEST_NAME),
        "revision": checks.integer(LARGEST_INTEGER),
        "parent": checks.integer(LARGEST_INTEGER),
        "verdict": checks.one_of(*get_args(RunVerdict)),
        "why": checks.words,
        "scale": checks.share,
        "lessons": checks.names,
        "new": checks.names,
        "on": checks.boolean,
        "has_weights": checks.boolean,
        "model": checks.text(),
        "backend": checks.text(),
        "recipe": checks.object_of(),
        "probe": checks.figures,
        "recall": checks.figures,
        "steps": checks.series,
        "norm": checks.number(0, 1e300),
        "tokens": checks.integer(LARGEST_INTEGER),
        "seconds": checks.number(0, 1e12),
    },
)

REVISION_WEIGHTS = Kind(
    WEIGHTS,
    ("part of a learned adapter", "parts of learned adapters"),
    {
        "base_sha256": checks.text(LONGEST_NAME),
        "revision": checks.integer(LARGEST_INTEGER, 1),
        "part": checks.integer(MOST_PARTS),
        "parts": checks.integer(MOST_PARTS, 1),
        "sha256": checks.text(LONGEST_NAME),
        "data": checks.text(),
    },
    has_blobs=True,
)
