"""Parts are made of the messages of each conversation and kept beside it. Searches read them.

A part is a row of bytes with the conversation's name (blobs.py). It is sealed in the same way as the conversation and
deleted with it. So a start reads one row per conversation instead of one per message. Parts are read when they are
first needed; after that, all of them are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from app.records.conversation_list import ConversationList
from app.records.sessions import KIND, TURN
from py_core.store.background import Background
from py_core.store.blobs import blob_name
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import BLOB, Change
from py_core.store.store import Store

SCANNED = 50
"""If parts of more conversations than this have to be made, all messages are read, in large pieces."""


class ConversationPart(Protocol):
    """The part of one conversation."""

    @property
    def version(self) -> int:
        """The version of the conversation's record that the part was made for."""
        ...

    def dump(self) -> bytes: ...


P = TypeVar("P", bound=ConversationPart)


class ConversationParts(ABC, Generic[P]):
    """The parts of one kind of all conversations. Follows every change, including those of other tabs.

    Code that changes the messages of a conversation also writes its record, so the record's version shows if a part is
    up to date.
    """

    name: ClassVar[str]
    """The last part of the rows' names."""
    made_of: ClassVar[frozenset[str]] = frozenset({KIND})
    """Kinds of records. Writing one of them means that a conversation continues."""

    def __init__(self, store: Store, conversations: ConversationList, background: Background) -> None:
        self._store, self._conversations, self._background = store, conversations, background
        self._parts: dict[str, P] = {}
        self._is_read = False
        self._unkept: set[str] = set()
        self._keeping = False
        self._last_changed = ""
        self._refreshing = asyncio.Lock()
        store.on_change(self._note)

    def read_again(self) -> None:
        """Read all parts again: the store has other rows, with other parts."""
        self._is_read = False

    async def refresh(self) -> dict[str, Record]:
        """Read changes since the last call. Returns the conversations, as ConversationList.newest_first."""
        async with self._refreshing:
            records = await self._conversations.newest_first()
            for id in self._parts.keys() - records.keys():
                self._drop(id)
            if not self._is_read:
                for id in tuple(self._parts):
                    self._drop(id)
                await self._read_kept(records)
                self._is_read = True
            stale = {id: record.version for id, record in records.items() if not self._is_current(id, record)}
            for id in stale.keys() & self._parts.keys():
                self._drop(id)
            for id, part in (await self._made(stale)).items():
                self._take(id, part)
            self._unkept.update(stale)
            self._keep_soon()
            return records

    @abstractmethod
    def _make(self, version: int, turns: Sequence[Record]) -> P:
        """Make a part. turns: all turns of the conversation, in order."""

    @abstractmethod
    def _read(self, id: str, data: bytes) -> P | None:
        """Read a part; None if the data is not what `dump` makes."""

    def _take(self, id: str, part: P) -> None:
        self._parts[id] = part

    def _drop(self, id: str) -> None:
        self._parts.pop(id)

    def _is_current(self, id: str, record: Record) -> bool:
        return id in self._parts and self._parts[id].version == record.version

    async def _delete_kept(self, ids: Collection[str]) -> None:
        async with self._store.transaction() as transaction:
            for id in ids:
                transaction.delete(BLOB, blob_name(KIND, id, self.name))

    async def _read_kept(self, records: Collection[str]) -> None:
        kept = await self._store.get_blobs([blob_name(KIND, id, self.name) for id in records])
        for id in records:
            data = kept.get(blob_name(KIND, id, self.name))
            if data is not None and (part := self._read(id, data)) is not None:
                self._take(id, part)

    async def _made(self, versions: Mapping[str, int]) -> dict[str, P]:
        """Make the parts of conversations whose records have these versions from their messages."""
        if len(versions) <= SCANNED:
            return {
                id: self._make(version, await self._store.starting_with(TURN, f"{id}/"))
                for id, version in versions.items()
            }
        made = {id: self._make(version, ()) for id, version in versions.items()}
        said = list[Record]()  # of one conversation: its messages are consecutive
        async for record in self._store.scan(TURN):
            if said and session_of(record.id) != session_of(said[0].id):
                self._made_of(said, versions, made)
                said = []
            said.append(record)
        self._made_of(said, versions, made)
        return made

    def _made_of(self, said: Sequence[Record], versions: Mapping[str, int], made: dict[str, P]) -> None:
        if said and (id := session_of(said[0].id)) in versions:
            made[id] = self._make(versions[id], said)

    def _note(self, change: Change) -> None:
        """Keep the part of a conversation once the user moves to another: it is complete for now, before any search."""
        for kind, id in () if change.elsewhere else change.puts:
            if kind in self.made_of and (session := session_of(id)) != self._last_changed:
                if self._last_changed:
                    self._unkept.add(self._last_changed)
                    self._keep_soon()
                self._last_changed = session

    def _keep_soon(self) -> None:
        if self._unkept and not self._keeping:
            self._keeping = True
            self._background.start(self._keep)

    async def _keep(self) -> None:
        """Keep the parts. A part that cannot be kept is made again when it is needed."""
        try:
            while self._unkept:
                async with self._background.step():
                    with contextlib.suppress(StoreError):
                        await self._keep_one(self._unkept.pop())
        finally:
            self._keeping = False

    async def _keep_one(self, id: str) -> None:
        record = await self._store.get(KIND, id)
        if record is None:
            return
        part = self._parts[id] if self._is_current(id, record) else (await self._made({id: record.version}))[id]
        # Keep no part of a conversation that was deleted or changed meanwhile.
        await self._store.put_blob(blob_name(KIND, id, self.name), part.dump(), {record.key: record.version})


def session_of(id: str) -> str:
    """The conversation's id, from its own id or a message's id."""
    return id.partition("/")[0]
