"""All learned and logged data, over one store.

memory = await Memory.open(await Store.open(rows))
await memory.sessions.start("Holidays")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.records.answer_log import AnswerLog
from app.records.conversation_list import ConversationList
from app.records.conversation_text import ConversationText
from app.records.conversation_vectors import ConversationVectors
from app.records.files import Files
from app.records.lessons import Lessons
from app.records.policies import Policies
from app.records.revisions import Revisions
from app.records.sessions import TURN, Sessions
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.learning.strategies import Strategies
from py_core.learning.trajectories import Trajectories
from py_core.routing.patterns import Patterns
from py_core.store.background import Background
from py_core.store.errors import StoreError
from py_core.store.store import Store
from py_core.store.transfer import newer
from py_core.store.vectors import VectorSearch
from py_core.store.write_batch import BatchedWriter


class Memory:
    """The memory; `open` makes it. All kinds of records share one search by meaning and one writer of batches."""

    def __init__(
        self, store: Store, writer: BatchedWriter, policies: Policies, kernel: Callable[[], HnswKernel | None]
    ) -> None:
        self.store = store
        self.writer = writer
        self.background = Background()
        self.search = VectorSearch(store, kernel, self.background)
        self.policies = policies
        self.patterns = Patterns(store)
        self.files = Files(store)
        self.lessons = Lessons(store)
        self.revisions = Revisions(store)
        self.sessions = Sessions(store, writer)
        self.conversations = ConversationList(store)
        self.text = ConversationText(store, self.conversations, self.background)
        self.vectors = ConversationVectors(store, self.conversations, self.background)
        self.trajectories = Trajectories(store, writer)
        self.log = AnswerLog(self.trajectories)
        self.strategies = Strategies(store)

    @classmethod
    async def open(
        cls,
        store: Store,
        kernel: Callable[[], HnswKernel | None] = lambda: None,
        on_error: Callable[[StoreError], None] | None = None,
    ) -> Memory:
        """Open the memory, and delete old records of answers. kernel: returns the indexes' kernel once
        it is loaded; None is numpy's. on_error is called with the error if the writer could not store a record.

        Raises StoreError.
        """
        writer = BatchedWriter(store, on_error=on_error)
        memory = cls(store, writer, await Policies.open(store, writer), kernel)
        await memory.trajectories.retain()
        return memory

    @property
    def is_locked(self) -> bool:
        """True if this is a temporary memory because the real one needs a passphrase: see `unlock`."""
        return self.store.locked_rows is not None

    async def unlock(self, passphrase: str | None) -> None:
        """Continue as the memory that was locked, including data that was written meanwhile. The object stays the same:
        its users and listeners are told that all content may have changed.

        Raises StoreError("passphrase") for a wrong passphrase.
        """
        if not self.is_locked:
            return
        await self.writer.flush()
        await self.store.unlock(passphrase, newer)
        try:
            self.text.read_again()
            self.vectors.read_again()
            await self.policies.reload()
            await self.trajectories.retain()
        finally:
            self.store.tell_all()

    async def forget(self) -> None:
        """Delete everything; for a locked memory, whose passphrase may be lost, including the passphrase."""
        await self.writer.flush()
        await self.store.delete_locked()
        await self.store.clear()
        await self.unlock(None)

    async def drop_vectors(self, kind: str) -> None:
        """Remove a kind's vectors because an earlier embedder made them."""
        await self.writer.flush()
        records = await self.store.query(kind)
        await self.store.put_many(replace(record, vector=None) for record in records if record.vector is not None)
        if kind == TURN:
            await self.vectors.forget()

    async def close(self) -> None:
        """Write waiting records, and close the store."""
        try:
            await self.background.close()
            await self.writer.close()
        finally:
            await self.store.close()
