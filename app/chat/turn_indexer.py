"""Gives each message of the stored conversations a vector, so that a search finds it by its meaning.

Messages are embedded in the background (memory/background.py), never while an answer is made: new messages when they
are stored, older messages at the first search. One text is embedded at a time, so a new message waits for at most one.
Only the first 256 tokens of a text count: a search finds the rest by its words. docs/decisions/0062 has what that
costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.records.memory import Memory
from app.records.sessions import TURN
from py_core.routing.embedder import Embedder, EmbedderError
from py_core.store.errors import StoreError
from py_core.store.records import Record
from py_core.store.rows import Change
from py_core.store.transaction import Transaction

TOGETHER = 16  # messages whose vectors are stored in one transaction
LONGEST = 4_000  # characters; more of them are over 256 tokens in every script


class TurnIndexer:
    """Works as long as it knows of messages without vectors in the memory, and has an embedder."""

    def __init__(
        self, memory: Callable[[], Memory], embedder: Callable[[], Embedder | None],
        listen: Callable[[Callable[[Change], None]], object], on_trouble: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        self._memory = memory
        self._embedder = embedder
        self._on_trouble = on_trouble
        self._waiting: dict[str, None] = {}  # ids of messages; the last one goes first
        self._storing: frozenset[str] = frozenset()
        self._works = False
        listen(self._note)

    async def index_all(self) -> None:
        """Index older messages, too; in the background."""
        if (embedder := self._embedder()) is not None:
            self._waiting = {**await self._memory().vectors.bare(), **self._waiting}
            self._start(embedder)

    def _note(self, change: Change) -> None:
        if not change.elsewhere and (embedder := self._embedder()) is not None:
            new = (id for kind, id in change.puts if kind == TURN and id not in self._storing)
            self._waiting.update(dict.fromkeys(new))
            self._start(embedder)

    def _start(self, embedder: Embedder) -> None:
        if self._waiting and not self._works:
            self._works = True
            self._memory().background.start(lambda: self._work(embedder))

    async def _work(self, embedder: Embedder) -> None:
        store = self._memory().store
        try:
            while self._waiting:
                ids = [self._waiting.popitem()[0] for _ in range(min(TOGETHER, len(self._waiting)))]
                records = [
                    record for record in await store.get_many([(TURN, id) for id in ids]) if _lacks_vector(record)
                ]
                await self._store([await self._with_vector(record, embedder) for record in records])
        except (EmbedderError, StoreError) as error:
            self._on_trouble(error)
        finally:
            self._works = False

    async def _with_vector(self, record: Record, embedder: Embedder) -> Record:
        async with self._memory().background.step():
            (vector,) = await embedder.embed([record.body["content"][:LONGEST]])
        return replace(record, vector=vector)

    async def _store(self, records: list[Record]) -> None:
        transaction = Transaction()
        for record in records:
            transaction.expect(TURN, record.id, record.version)  # not a message that was deleted meanwhile
            transaction.put(record)
        self._storing = frozenset(record.id for record in records)
        try:
            if records:
                await self._memory().store.commit(transaction)
        except StoreError as error:
            if error.reason != "conflict":
                raise
            self._waiting.update(dict.fromkeys(self._storing))  # look again
        finally:
            self._storing = frozenset()


def _lacks_vector(record: Record) -> bool:
    return record.vector is None and bool(record.body["content"].strip())
