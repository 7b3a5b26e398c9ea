"""The files that a person attached to a conversation: their text, and the vectors of their passages.

A file belongs to one conversation and is deleted with it (sessions.py); passages are deleted with their file. A
passage's record has no text: it names a range of characters in the file's text.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from py_core.store import field_checks as checks
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import LONGEST_NAME, Record, Vector
from py_core.store.store import Store
from py_core.store.transaction import Transaction

KIND, PASSAGE = "file", "passage"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """name, type: as the file was given; type is its MIME type, "" for none. size: its bytes before conversion to
    text."""

    session: str
    name: str
    type: str
    size: int
    text: str = field(repr=False)
    id: str = ""
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Passage:
    """The characters [start, end) of a file's text. made_by: the fingerprint of the embedder that made the vector."""

    start: int
    end: int
    place: str
    made_by: str
    vector: Vector = field(compare=False, repr=False)


class Files:
    """The files of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, file: StoredFile) -> StoredFile:
        """Store a new file; it gets its id."""
        id, now = file.id or f"{file.session}/{uuid.uuid4().hex[:12]}", file.created or self._store.clock()
        kept = StoredFile(file.session, file.name, file.type, file.size, file.text, id, now)
        body = {"session": file.session, "name": file.name, "type": file.type, "size": file.size, "text": file.text}
        await self._store.put(Record(KIND, id, body, created=now))
        return kept

    async def get(self, id: str) -> StoredFile | None:
        record = await self._store.get(KIND, id)
        return _file(record) if record else None

    async def of(self, session: str) -> list[StoredFile]:
        """The files of a conversation, oldest first."""
        records = await self._store.starting_with(KIND, f"{session}/")
        return sorted(map(_file, records), key=lambda file: (file.created, file.id))

    async def delete(self, *ids: str) -> None:
        """Delete files with their passages, in one transaction. Missing ids are no error."""
        passages = [key for id in ids for key in await self._store.keys_starting_with(PASSAGE, f"{id}/")]
        async with self._store.transaction() as transaction:
            for id in ids:
                transaction.delete(KIND, id)
            for key in passages:
                transaction.delete(*key)

    async def passages(self, id: str) -> dict[int, Passage]:
        """The passages of a file that have a vector, by their numbers."""
        return {
            int(record.id.rpartition("/")[2]): _passage(record)
            for record in await self._store.starting_with(PASSAGE, f"{id}/")
            if record.vector is not None
        }

    async def keep_passages(self, file: StoredFile, passages: Iterable[tuple[int, Passage]]) -> bool:
        """Keep the passages of a file. Return True if they were kept, False if the file was deleted meanwhile."""
        record = await self._store.get(KIND, file.id)
        if record is None:
            return False
        transaction = Transaction()
        transaction.expect(KIND, file.id, record.version)
        for number, one in passages:
            body = {
                "session": file.session, "file": file.id, "start": one.start, "end": one.end, "place": one.place,
                "made_by": one.made_by,
            }  # fmt: skip
            transaction.put(Record(PASSAGE, f"{file.id}/{number:06d}", body, one.vector))
        await self._store.commit(transaction)
        return True


def ids_of_session(session: str) -> Sequence[tuple[str, str]]:
    """The beginnings of the ids of a conversation's files and passages: (kind, prefix)."""
    return (KIND, f"{session}/"), (PASSAGE, f"{session}/")


def _file(record: Record) -> StoredFile:
    assert record.created is not None
    return StoredFile(id=record.id, created=record.created, **record.body)


def _passage(record: Record) -> Passage:
    assert record.vector is not None
    body = record.body
    return Passage(body["start"], body["end"], body["place"], body["made_by"], record.vector)


def _is_of_its_session(record: Record) -> str | None:
    """Check a file's id: a conversation finds its files by their ids."""
    of_it = record.id.startswith(f"{record.body['session']}/")
    return None if of_it else "The id of a file begins with that of its conversation."


def _is_of_its_file(record: Record) -> str | None:
    """Check a passage's id: a file finds its parts by their ids, and each has its number in it."""
    file, _, number = record.id.rpartition("/")
    of_it = file == record.body["file"] and file.startswith(f"{record.body['session']}/") and number.isdecimal()
    return None if of_it and number.isascii() else "The id of a part of a file is that of its file and a number."


FILES = Kind(
    KIND,
    ("file", "files"),
    {
        "session": checks.name,
        "name": checks.name,
        "type": checks.text(LONGEST_NAME),
        "size": checks.integer(LARGEST_INTEGER),
        "text": checks.text(),
    },
    problem=_is_of_its_session,
)

PASSAGES = Kind(
    PASSAGE,
    ("part of a file", "parts of files"),
    {
        "session": checks.name,
        "file": checks.name,
        "start": checks.integer(LARGEST_INTEGER),
        "end": checks.integer(LARGEST_INTEGER),
        "place": checks.text(LONGEST_NAME),
        "made_by": checks.text(LONGEST_NAME),
    },
    vector="required",
    problem=_is_of_its_file,
)
