"""What came of training the router's head further: the changes of its weights, with the corrections that they know.

A head is used while each correction that it knows is there as it was. Whoever deletes a correction deletes the numbers
that know it in the same transaction (`Patterns.delete`).
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from py_core.memory.records import Record
from py_core.memory.store import Store
from py_core.memory.transaction import Transaction

KIND = "head"
KEPT = 8
"""So many trainings are kept, and the numbers of the last KEPT_NUMBERS that were accepted."""
KEPT_NUMBERS = 2

HeadVerdict = Literal["accepted", "refused", "undone"]
"""undone: it was accepted, and the user took it back."""


@dataclass(frozen=True)
class TrainedHead:
    """base: names what was trained, and with which embedder. learned: the agent of each correction, by its pattern's
    id. weight: what a correction counted beside a shipped example. figures: "held" (how many corrections were held
    out), "held_before" and "held_after" (shares of them that go to the user's agent), "probe_before" and "probe_after"
    (shares of the shipped examples that are right).

    data: the numbers, as head_data (app/router_training.py) has them; empty where it was refused or they are gone.
    """

    base: str
    verdict: HeadVerdict
    why: str
    learned: Mapping[str, str]
    weight: float
    figures: Mapping[str, float]
    seconds: float = 0.0
    data: bytes = b""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: float = 0.0


class Heads:
    """Those of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[TrainedHead]:
        """Oldest first."""
        return [_head(record) for record in await self._store.query(KIND)]

    async def keep(self, head: TrainedHead) -> None:
        """Store it, and drop old ones."""
        before = await self.all()
        async with self._store.transaction() as transaction:
            transaction.put(_record(head))
            for old in before[: max(len(before) + 1 - KEPT, 0)]:
                transaction.delete(KIND, old.id)
            with_numbers = [one for one in before if one.data]
            for old in with_numbers[: max(len(with_numbers) + bool(head.data) - KEPT_NUMBERS, 0)]:
                if all(key != (KIND, old.id) for key in transaction.deletes):
                    transaction.put(_without_numbers(old))

    async def undo(self, head: TrainedHead) -> None:
        """Take it back: the one before is the last again, and the same is not trained once more."""
        await self._store.put(_without_numbers(replace(head, verdict="undone")))

    async def forget_patterns(self, ids: Collection[str], transaction: Transaction) -> None:
        """Delete the numbers of each that knows one of these patterns."""
        for head in await self.all():
            if head.data and not set(ids).isdisjoint(head.learned):
                transaction.put(_without_numbers(head))


def _without_numbers(head: TrainedHead) -> Record:
    return _record(replace(head, data=b""))


def _record(head: TrainedHead) -> Record:
    body: dict[str, Any] = asdict(head)
    id, created = body.pop("id"), body.pop("created")
    return Record(KIND, id, {**body, "data": base64.b64encode(head.data).decode()}, created=created or None)


def _head(record: Record) -> TrainedHead:
    assert record.created is not None
    try:
        data = base64.b64decode(record.body["data"], validate=True)
    except binascii.Error:
        data = b""
    return TrainedHead(**{**record.body, "data": data}, id=record.id, created=record.created)
