"""Conversations: their turns, and what is needed to continue them."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from py_core.memory.errors import StoreError
from py_core.memory.records import Record
from py_core.memory.store import ATTEMPTS, Store
from py_core.memory.trajectories import KIND as TRAJECTORY
from py_core.memory.transaction import Transaction
from py_core.memory.write_batch import BatchedWriter

KIND, TURN = "session", "turn"


@dataclass(frozen=True, slots=True)
class Turn:
    """role: as in chat templates ("user", "assistant"). details: whatever belongs to it, as the agent that answered."""

    role: str
    content: str
    created: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation without its turns. state: what resumes it, JSON."""

    id: str
    title: str = ""
    turns: int = 0
    adapter: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0
    updated: float = 0.0


class Sessions:
    """The conversations of a store. A turn is a record of its own, so that adding one costs the same in a long one."""

    def __init__(self, store: Store, writer: BatchedWriter | None = None) -> None:
        self._store, self._writer = store, writer

    async def start(self, title: str = "", *, adapter: str | None = None) -> Session:
        now = self._store.clock()
        session = Session(uuid.uuid4().hex, title, adapter=adapter, created=now, updated=now)
        await self._store.put(_record(session))
        return session

    async def get(self, id: str) -> Session | None:
        record = await self._store.get(KIND, id)
        return _session(record) if record else None

    async def all(self) -> list[Session]:
        """The one that was changed last comes first."""
        sessions = [_session(record) for record in await self._store.query(KIND)]
        return sorted(sessions, key=lambda session: session.updated, reverse=True)

    async def add_turns(self, id: str, *turns: Turn, replaces: int | None = None, **changes: Any) -> Session:
        """Append turns, and change the session as `edit` does, in one transaction.

        Two tabs that append at once both do. replaces: the turns take the place of the last ones, if there are still
        as many turns as this says. Raises StoreError("record") when there is no such session.
        """
        for _ in range(ATTEMPTS):
            record = await self._store.get(KIND, id)
            if record is None:
                raise StoreError("record", "This conversation was deleted. Start a new one.")
            session = _session(record)
            first = session.turns - (len(turns) if session.turns == replaces else 0)
            changed = replace(session, **changes, turns=first + len(turns), updated=self._store.clock())
            transaction = Transaction()
            transaction.expect(KIND, id, record.version)
            transaction.put(_record(changed))
            for number, turn in enumerate(turns, first):
                body = {**asdict(turn), "session": id}
                del body["created"]
                transaction.put(Record(TURN, _turn_id(id, number), body, created=turn.created or None))
            try:
                await self._store.commit(transaction)
                return changed
            except StoreError as error:
                if error.reason != "conflict":
                    raise
        raise StoreError("conflict")

    async def edit(self, id: str, **changes: Any) -> Session:
        """Change title, adapter or state."""
        return await self.add_turns(id, **changes)

    async def turns(self, id: str) -> list[Turn]:
        """In the order they were said."""
        return [_turn(record) for record in await self._store.starting_with(TURN, f"{id}/")]

    async def delete(self, id: str) -> None:
        """The conversation, all its turns, and the trajectories of its answers."""
        if self._writer is not None:
            await self._writer.flush()  # a trajectory that waits must not be written after this
        answers = await self._store.query(TRAJECTORY, {"session": id})
        turns = await self._store.keys_starting_with(TURN, f"{id}/")
        async with self._store.transaction() as transaction:
            transaction.delete(KIND, id)
            for key in turns:
                transaction.delete(*key)
            for answer in answers:
                transaction.delete(*answer.key)


def _turn_id(session: str, number: int) -> str:
    return f"{session}/{number:06d}"


def _record(session: Session) -> Record:
    body = {name: getattr(session, name) for name in ("title", "turns", "adapter", "state")}
    return Record(KIND, session.id, body, None, session.created, session.updated)


def _session(record: Record) -> Session:
    assert record.created is not None
    assert record.updated is not None
    return Session(id=record.id, created=record.created, updated=record.updated, **record.body)


def _turn(record: Record) -> Turn:
    assert record.created is not None
    values = {name: value for name, value in record.body.items() if name != "session"}
    return Turn(created=record.created, **values)
