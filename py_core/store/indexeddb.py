"""Rows in the page's IndexedDB, through web/memory/indexeddb.js and Pyodide.

Writes are durable ("strict") when `apply` returns. One tab writes (web/memory/tab_writer.js). The other tabs send it
their batches and receive every change; one of them takes over when it closes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from pyodide.ffi import JsException, create_proxy, to_js

from py_core.store.errors import SENTENCES, StoreError, as_reason
from py_core.store.packing import pack, unpack
from py_core.store.rows import LAYOUT, Batch, Change, Key, OnChange, Query, Range, Row, mended_meta

T = TypeVar("T")


class IndexedDBRows:
    """See `Rows`. Made by `open`."""

    persistent = True

    def __init__(self, database: Any, name: str) -> None:
        self.place = f"this browser's database {name}"
        self.data_loss: str = database.dataLoss
        """The browser's reason for discarding the stored data, if it did: for the user, who may have an export."""
        self._database = database
        self._proxy: Any = None

    @classmethod
    async def open(cls, memory_store: Any, name: str = "sonata-memory") -> IndexedDBRows:
        """Open or create a database. memory_store: `memoryStore` of web/memory/indexeddb.js.

        Raises StoreError: newer, blocked, unavailable.
        """
        return cls(await _answer(memory_store.open(name, LAYOUT)), name)

    async def meta(self) -> dict[str, str]:
        return mended_meta(json.loads(await _answer(self._database.meta())))

    async def get(self, keys: Sequence[Key]) -> list[Row]:
        return await self._rows(self._database.get(json.dumps(list(keys))))

    async def scan(self, kind: str | None, after: Key | None, limit: int) -> list[Row]:
        return await self._rows(self._database.scan(json.dumps([kind, after, limit])))

    async def query(self, query: Query) -> list[Row]:
        where = [
            [name, wanted.low, wanted.high] if isinstance(wanted, Range) else [name, wanted, wanted]
            for name, wanted in query.where.items()
        ]
        asked = [query.kind, where, query.since, query.before, query.newest_first, query.limit]
        return await self._rows(self._database.query(json.dumps(asked)))

    async def count(self, kind: str | None) -> int:
        return int(await _answer(self._database.count(json.dumps(kind))))

    async def apply(self, batch: Batch) -> int:
        head, data = pack(batch.puts)
        whole = {
            "puts": head,
            "deletes": list(batch.deletes),
            "clear": batch.clear,
            "meta": dict(batch.meta),
            "expectMeta": dict(batch.expect_meta),
            "expectVersions": [[kind, id, version] for (kind, id), version in batch.expect_versions.items()],
        }
        return int(await _answer(self._database.apply(json.dumps(whole, allow_nan=False), to_js(data))))

    async def poll(self) -> bool:
        return False

    def listen(self, heard: OnChange | None) -> None:
        if self._proxy is not None:
            self._proxy.destroy()
        self._proxy = None if heard is None else create_proxy(lambda change: heard(_change(change)))
        self._database.onChange = self._proxy

    async def check_room(self) -> None:
        """Do nothing: browsers give no reliable figure. Without enough space `compact` fails without losing data."""

    async def was_locked(self) -> bool:
        return bool(await _answer(self._database.wasLocked()))

    async def note_locked(self, locked: bool) -> None:
        await _answer(self._database.noteLocked(locked))

    async def compact(self) -> None:
        """See web/memory/relocation.js."""
        try:
            await _answer(self._database.compact())
        except StoreError as error:
            if error.reason == "closed":
                raise
            raise StoreError(
                "compacting",
                "memory.compacting-because",
                "{sentence} ({why})",
                sentence=SENTENCES["compacting"],
                why=error,
            ) from error

    async def close(self) -> None:
        self.listen(None)
        self._database.close()

    async def _rows(self, asked: Awaitable[Any]) -> list[Row]:
        packed = await _answer(asked)
        return unpack(json.loads(packed.head), packed.data.to_bytes())


def _change(text: str) -> Change:
    change = json.loads(text)
    puts, deletes = (tuple((kind, id) for kind, id in change[name]) for name in ("puts", "deletes"))
    return Change(puts, deletes, change["cleared"], elsewhere=True, everything=change["everything"])


async def _answer(promise: Awaitable[Any]) -> Any:
    try:
        return await promise
    except JsException as error:
        reason = as_reason(error.name)
        if reason == error.name:
            raise StoreError(reason) from error
        raise StoreError(
            reason,
            "memory.browser-failed",
            "The browser's storage failed ({name}: {message}).",
            name=error.name,
            message=error.message,
        ) from error
