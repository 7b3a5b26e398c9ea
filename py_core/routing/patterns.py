"""Patterns learned about requests: a text, with its vector, belongs to an agent, and its vote has a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from py_core.store import field_checks as checks
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import Record, Vector
from py_core.store.store import Store

KIND = "pattern"
LEAST_WEIGHT, MOST_WEIGHT = 0.5, 2.0
OUTCOME_STEP = 0.05
"""The share of a weight by which one outcome raises or lowers it."""
DAY_SECONDS = 86400.0
FADING_DAYS = 30
"""Days without use after which a user's pattern counts half. It never counts less than half."""

Source = Literal["example", "agent", "user"]
"""A shipped example, an example that a user gave to an agent, a user's correction."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A request and its agent. Times are seconds since 1970.

    vector: float32 (dimensions,), of length 1. weight: LEAST_WEIGHT to MOST_WEIGHT, learned from outcomes; 1 at first.
    uses: how often it decided a route.
    """

    id: str
    text: str
    vector: Vector = field(compare=False, repr=False)
    agent: str
    source: Source = "user"
    weight: float = 1.0
    uses: int = field(default=0, compare=False)
    created: float = field(default=0.0, compare=False)
    last_used: float = field(default=0.0, compare=False)

    def after_outcome(self, good: bool) -> Pattern:
        """A copy after a route that it decided was right or wrong. No other rule learns weights."""
        return self.scaled(1 + OUTCOME_STEP if good else 1 - OUTCOME_STEP)

    def scaled(self, factor: float) -> Pattern:
        """A copy with the weight multiplied, within its limits."""
        return replace(self, weight=min(max(self.weight * factor, LEAST_WEIGHT), MOST_WEIGHT))

    def strength(self, now: float) -> float:
        """The weight of its vote: the pattern's weight, but less for a user's pattern that was not used for days."""
        if self.source != "user":
            return self.weight
        # Whole days, so that a decision is the same a moment later.
        unused_days = max(now - self.last_used, 0.0) // DAY_SECONDS
        return self.weight * 0.5 ** min(unused_days / FADING_DAYS, 1.0)


class Patterns:
    """The patterns of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, pattern: Pattern) -> None:
        """Store the pattern. If it is stored already, it keeps its uses and dates."""
        kept = await self.edit(
            pattern.id, text=pattern.text, vector=pattern.vector, agent=pattern.agent, weight=pattern.weight
        )
        if kept is None:
            now = self._store.clock()
            await self.add_many([replace(pattern, uses=0, created=now, last_used=now)])

    async def add_many(self, patterns: list[Pattern]) -> None:
        """Store patterns unchanged; all or none."""
        await self._store.put_many(_record(pattern) for pattern in patterns)

    async def get(self, id: str) -> Pattern | None:
        record = await self._store.get(KIND, id)
        return _pattern(record) if record else None

    async def all(self) -> list[Pattern]:
        """All patterns, oldest first."""
        return [_pattern(record) for record in await self._store.query(KIND)]

    async def edit(self, id: str, **changes: Any) -> Pattern | None:
        """Change text, vector, agent, weight or source. Returns None if there is no such pattern."""
        return await self._change(id, lambda pattern: replace(pattern, **changes))

    async def use(self, id: str) -> Pattern | None:
        """Note that the pattern decided a route just now. Returns None if there is no such pattern."""
        return await self._change(
            id, lambda pattern: replace(pattern, uses=pattern.uses + 1, last_used=self._store.clock())
        )

    async def delete(self, *ids: str) -> None:
        await self._store.delete(KIND, *ids)

    async def _change(self, id: str, change: Callable[[Pattern], Pattern]) -> Pattern | None:
        record = await self._store.update(KIND, id, lambda record: _record(change(_pattern(record))))
        return _pattern(record) if record else None


def _record(pattern: Pattern) -> Record:
    values = asdict(pattern)
    for name in ("id", "vector", "created"):
        del values[name]
    return Record(KIND, pattern.id, values, pattern.vector, pattern.created)


def _pattern(record: Record) -> Pattern:
    assert record.vector is not None
    assert record.created is not None
    return Pattern(id=record.id, vector=record.vector, created=record.created, **record.body)


def _weight_for_quality(record: Record, partner: Record | None) -> Record:
    """Until version 3 the router stored half of its weight; a value below its least weight counted as the least."""
    quality = record.body.get("quality")
    if not isinstance(quality, int | float) or not 0 <= quality <= 1:
        return record  # no version wrote it: it is unreadable
    body = {name: value for name, value in record.body.items() if name != "quality"}
    return replace(record, body={**body, "weight": min(max(2.0 * quality, 0.5), 2.0)})


PATTERNS = Kind(
    KIND,
    ("pattern", "patterns"),
    {
        "text": checks.text(),
        "agent": checks.name,
        "weight": checks.number(LEAST_WEIGHT, MOST_WEIGHT),
        "uses": checks.integer(LARGEST_INTEGER),
        "source": checks.one_of(*get_args(Source)),
        "last_used": checks.time,
    },
    vector="required",
    indexed=("agent",),
    migrations={2: _weight_for_quality},
)
