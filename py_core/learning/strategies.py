"""Findings from many answers: how well messages like these are answered, and by which agent. The deep loop writes
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from py_core.store import field_checks as checks
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import LONGEST_NAME, Record, Vector
from py_core.store.store import Store
from py_core.store.transaction import Transaction

KIND = "strategy"

Verdict = Literal["success", "failure", "partial", "unknown"]
"""Messages of this group are answered well, badly, or with mixed results, or nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """A group of similar messages. vector: their centre, float32 (dimensions,), of length 1.

    examples: the messages nearest to it. agent: the agent with the best answers, "" for the plain assistant. verdict,
    quality: see learning/reasoning_bank.py; quality, from 0 to 1, is how reliable the verdict is. count: the number of
    messages. known, good: the weights of the messages with known quality and of the good ones. archived: count, known
    and good of those whose trajectories are gone. last_used: when the latest message came, in seconds since 1970.
    """

    id: str
    vector: Vector = field(repr=False)
    examples: tuple[str, ...] = ()
    agent: str = ""
    verdict: Verdict = "unknown"
    quality: float = 0.0
    count: int = 0
    known: float = 0.0
    good: float = 0.0
    archived: tuple[float, float, float] = (0.0, 0.0, 0.0)
    created: float = 0.0
    last_used: float = 0.0


class Strategies:
    """The strategies of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[Strategy]:
        """All strategies, oldest first."""
        return [_strategy(record) for record in await self._store.query(KIND)]

    async def replace_all(self, strategies: Sequence[Strategy]) -> None:
        """Replace all strategies with these, all or nothing."""
        async with self._store.transaction() as transaction:
            self.replace_in(transaction, strategies)

    def replace_in(self, transaction: Transaction, strategies: Sequence[Strategy]) -> None:
        """Replace all strategies as `replace_all` does, within the transaction."""
        transaction.clear(KIND)
        for strategy in strategies:
            transaction.put(_record(replace(strategy, created=strategy.created or self._store.clock())))

    async def delete(self, *ids: str) -> None:
        await self._store.delete(KIND, *ids)


def _record(strategy: Strategy) -> Record:
    body: dict[str, Any] = asdict(replace(strategy, vector=None))  # type: ignore[arg-type]
    for name in ("id", "vector", "created"):
        del body[name]
    body |= {"examples": list(strategy.examples), "archived": list(strategy.archived)}
    return Record(KIND, strategy.id, body, strategy.vector, strategy.created)


def _strategy(record: Record) -> Strategy:
    assert record.vector is not None
    assert record.created is not None
    count, known, good = record.body["archived"]
    values = {**record.body, "examples": tuple(record.body["examples"]), "archived": (count, known, good)}
    return Strategy(id=record.id, vector=record.vector, created=record.created, **values)


STRATEGIES = Kind(
    KIND,
    ("strategy", "strategies"),
    {
        "examples": checks.texts,
        "agent": checks.text(LONGEST_NAME),
        "verdict": checks.one_of(*get_args(Verdict)),
        "quality": checks.share,
        "count": checks.integer(LARGEST_INTEGER),
        "known": checks.number(0, 1e12),
        "good": checks.number(0, 1e12),
        "archived": checks.three_numbers,
        "last_used": checks.time,
    },
    vector="required",
)
