"""Pages of keys and values of conversations (engine/page_keeping.py), in rows of their own.

They are not in the memory's database because they are large and can be made again, while that database is sometimes
rewritten completely and is the content of exports. They are encrypted with the memory's key if the memory is encrypted.
A conversation has a row that lists its pages, and a row for each page. Once encrypted, the names of the pages reveal
nothing about the text. If all pages together exceed the budget, those of the most recently used conversations stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from py_core.store.codec import open_blob, seal_blob
from py_core.store.encryption import Lock
from py_core.store.errors import StoreError
from py_core.store.rows import BLOB, EVERYTHING, UNCOMPACTED, Batch, Key, Query, Row, Rows

CHAT = "chat"
"""The kind of the rows that list a conversation's pages."""


@dataclass
class _Chat:
    """The kept pages of a conversation: for each page, by its name, the row's id and the size in bytes."""

    used: float
    version: int = 0
    pages: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.pages.values())


class KeptPages:
    """Keeps pages. No method raises: after an error nothing counts as kept, which only costs time."""

    def __init__(
        self, rows: Rows, lock: Callable[[], Lock | None], budget: int, clock: Callable[[], float] = time.time
    ) -> None:
        """lock: the memory's current lock. budget: the most bytes of all pages."""
        self._rows, self._lock, self._budget, self._clock = rows, lock, budget, clock
        self._chats: dict[str, _Chat] | None = None
        """The conversations as they were read last; None if they must be read again."""
        self._header: str | None = None
        """The header of the key that the pages are encrypted with."""
        self._working = asyncio.Lock()

    async def nbytes(self) -> int:
        """The size of all pages in bytes."""
        async with self._working:
            with contextlib.suppress(StoreError):
                return sum(chat.nbytes for chat in (await self._read_chats()).values())
        return 0

    async def names(self, chat: str) -> Collection[str]:
        """The names of the pages that are kept of a conversation."""
        async with self._working:
            with contextlib.suppress(StoreError):
                return frozenset(found.pages) if (found := (await self._read_chats()).get(chat)) else frozenset()
        return frozenset()

    async def read(self, chat: str, names: Sequence[str]) -> list[bytes]:
        """The pages with these names, up to the first that is missing or cannot be read."""
        pages, lock = list[bytes](), self._lock()
        async with self._working:
            with contextlib.suppress(StoreError):
                known = (await self._read_chats()).get(chat, _Chat(0.0)).pages
                ids = [known[name][0] for name in takewhile(known.__contains__, names)]
                found = {row.id: row.body for row in await self._rows.get([(BLOB, id) for id in ids])}
                for id in ids:
                    page = await open_blob(id, found[id], lock) if id in found else None
                    if page is None:
                        break
                    pages.append(page)
        return pages

    async def write(self, chat: str, name: str, data: bytes) -> bool:
        """Keep a page. Return False if there is no room for it even after the pages of all other conversations are
        gone."""
        async with self._working:
            try:
                chats, now = await self._read_chats(), self._clock()
                known = chats.get(chat, _Chat(now))
                id, lock = f"{chat}/{uuid.uuid4().hex}", self._lock()
                changed = replace(known, used=now, pages={**known.pages, name: (id, len(data))})
                gone = _oldest(chats, chat, sum(one.nbytes for one in chats.values()) + len(data) - self._budget)
                if gone is None:
                    return False
                page = Row(BLOB, id, now, now, await seal_blob(id, data, lock))
                deletes = [*_keys(chats, gone), *([(BLOB, known.pages[name][0])] if name in known.pages else ())]
                await self._apply(chat, changed, [page], deletes)
                for one in gone:
                    del chats[one]
                return True
            except StoreError:
                self._chats = None  # another program has written, or the disk is full
                return False

    async def drop(self, chat: str, names: Iterable[str]) -> None:
        """Forget damaged pages."""
        async with self._working:
            try:
                known = (await self._read_chats()).get(chat)
                if known is None or not (dropped := {name: known.pages[name] for name in names if name in known.pages}):
                    return
                rest = {name: page for name, page in known.pages.items() if name not in dropped}
                await self._apply(chat, replace(known, pages=rest), [], [(BLOB, id) for id, _ in dropped.values()])
            except StoreError:
                self._chats = None

    async def forget(self, *chats: str) -> None:
        """Delete all pages of conversations."""
        async with self._working:
            try:
                known = await self._read_chats()
                if gone := [chat for chat in chats if chat in known]:
                    await self._rows.apply(Batch(deletes=_keys(known, gone)))
                for chat in gone:
                    del known[chat]
            except StoreError:
                self._chats = None

    async def forget_others(self, chats: Collection[str]) -> None:
        """Delete the pages of all conversations except these."""
        gone = list[str]()
        async with self._working:
            with contextlib.suppress(StoreError):
                gone = [chat for chat in await self._read_chats() if chat not in chats]
        await self.forget(*gone)

    async def look_again(self) -> None:
        """Check if the memory has another key now: pages that were encrypted with the earlier key are deleted."""
        async with self._working:
            self._chats = None
            with contextlib.suppress(StoreError):
                await self._read_chats()

    async def clear(self) -> None:
        """Delete all pages, also from the files."""
        async with self._working:
            with contextlib.suppress(StoreError):
                await self._begin_anew()

    async def close(self) -> None:
        async with self._working:
            await self._rows.close()

    async def _apply(self, chat: str, changed: _Chat, puts: Sequence[Row], deletes: Sequence[Key]) -> None:
        """Write a conversation's current pages. Raises StoreError("conflict") or ("changed") if others wrote, too."""
        assert self._chats is not None
        body = json.dumps([[name, *page] for name, page in changed.pages.items()]).encode()
        sealed = await seal_blob(_list_name(chat), body, self._lock())
        puts = [*puts, Row(CHAT, chat, changed.used, changed.used, sealed)]
        expected = {(CHAT, chat): changed.version}
        batch = Batch(puts, deletes, expect_meta={"key": self._header}, expect_versions=expected)
        # If this is cancelled, it is unknown if the rows were written. Then all are read again; otherwise an unknown
        # page would outlive its conversation.
        known, self._chats = self._chats, None
        known[chat] = replace(changed, version=await self._rows.apply(batch))
        self._chats = known

    async def _read_chats(self) -> dict[str, _Chat]:
        """Return what is kept. Start again if it has a different key than the memory, or is damaged. Raises
        StoreError."""
        lock = self._lock()
        self._header = lock.header if lock else None
        if self._chats is None:
            meta = await self._rows.meta()
            if meta.get("key") != self._header:
                await self._begin_anew()
            elif UNCOMPACTED in meta:
                await self._compact()
            # Set only once it is complete: a cancelled read would leave conversations that could not be deleted.
            self._chats = await self._listed(lock)
        return self._chats

    async def _listed(self, lock: Lock | None) -> dict[str, _Chat]:
        chats = dict[str, _Chat]()
        for row in await self._rows.query(Query(CHAT)):
            try:
                pages = json.loads(await open_blob(_list_name(row.id), row.body, lock) or b"")
                found = {str(name): (str(id), int(nbytes)) for name, id, nbytes in pages}
            except (ValueError, TypeError):  # its pages cannot be found any more
                await self._begin_anew()
                return {}
            chats[row.id] = _Chat(row.updated, row.version, found)
        return chats

    async def _begin_anew(self) -> None:
        lock = self._lock()
        self._header = lock.header if lock else None
        await self._rows.apply(Batch(clear=EVERYTHING, meta={"key": self._header, UNCOMPACTED: "yes"}))
        self._chats = {}
        await self._compact()

    async def _compact(self) -> None:
        with contextlib.suppress(StoreError):  # another program has the file open: the next one compacts it
            await self._rows.compact()


def _list_name(chat: str) -> str:
    return f"{CHAT} {chat}"


def _keys(chats: dict[str, _Chat], gone: Iterable[str]) -> list[Key]:
    """The keys of all rows of conversations."""
    keys = list[Key]()
    for chat in gone:
        keys += [(CHAT, chat), *((BLOB, id) for id, _ in chats[chat].pages.values())]
    return keys


def _oldest(chats: dict[str, _Chat], chat: str, nbytes: int) -> list[str] | None:
    """The conversations whose pages must go to free `nbytes` bytes; None if that is not possible."""
    gone = list[str]()
    for one in sorted((one for one in chats if one != chat), key=lambda one: chats[one].used):
        if nbytes <= 0:
            break
        gone.append(one)
        nbytes -= chats[one].nbytes
    return gone if nbytes <= 0 else None
