"""What was learned about requests: this text, with this vector, belongs to this agent."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from py_core.memory.records import Record, Vector
from py_core.memory.store import Store
from py_core.memory.vectors import VectorSearch

KIND = "pattern"
HALF_LIFE_SECONDS = 30 * 86400.0
LEARNING_RATE = 0.2  # how much one outcome moves the quality


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """quality: 0 to 1. uses: how often it decided a route. Times are seconds since 1970."""

    id: str
    text: str
    vector: Vector
    agent: str
    quality: float = 1.0
    uses: int = 0
    source: str = "user"
    created: float = 0.0
    last_used: float = 0.0

    def weight(self, now: float, half_life: float = HALF_LIFE_SECONDS) -> float:
        """quality, halved for each half_life in which it was not used."""
        return self.quality * 0.5 ** (max(now - self.last_used, 0.0) / half_life)


class Patterns:
    """The patterns of a store."""

    def __init__(self, store: Store, search: VectorSearch | None = None, half_life: float = HALF_LIFE_SECONDS) -> None:
        self._store = store
        self._search = search or VectorSearch(store)
        self.half_life = half_life

    async def add(
        self, text: str, vector: Vector, agent: str, *, quality: float = 1.0, source: str = "user"
    ) -> Pattern:
        now = self._store.clock()
        pattern = Pattern(uuid.uuid4().hex, text, vector, agent, quality, 0, source, now, now)
        await self._store.put(_record(pattern))
        return pattern

    async def add_many(self, patterns: list[Pattern]) -> None:
        """All or none."""
        await self._store.put_many(_record(pattern) for pattern in patterns)

    async def get(self, id: str) -> Pattern | None:
        record = await self._store.get(KIND, id)
        return _pattern(record) if record else None

    async def all(self, agent: str | None = None) -> list[Pattern]:
        """Oldest first."""
        records = await self._store.query(KIND, {"agent": agent} if agent is not None else None)
        return [_pattern(record) for record in records]

    async def edit(self, id: str, **changes: Any) -> Pattern | None:
        """Change text, vector, agent, quality or source."""
        return await self._change(id, lambda pattern: replace(pattern, **changes))

    async def use(self, id: str, outcome: float | None = None) -> Pattern | None:
        """It decided a route just now. outcome: 0 (wrong) to 1 (right), where it is known, moves the quality."""

        def used(pattern: Pattern) -> Pattern:
            quality = pattern.quality
            if outcome is not None:
                quality += LEARNING_RATE * (min(max(outcome, 0.0), 1.0) - quality)
            return replace(pattern, uses=pattern.uses + 1, quality=quality, last_used=self._store.clock())

        return await self._change(id, used)

    async def delete(self, *ids: str) -> None:
        await self._store.delete(KIND, *ids)

    async def search(self, vector: Vector, k: int) -> list[tuple[Pattern, float]]:
        """The k nearest (pattern, similarity), the most similar first; weigh them with `Pattern.weight`."""
        return [(_pattern(record), similarity) for record, similarity in await self._search.search(KIND, vector, k)]

    async def prune(self, least_weight: float) -> int:
        """Delete what weighs less than that by now. Returns how many went."""
        now = self._store.clock()
        weak = [p.id for p in await self.all() if p.weight(now, self.half_life) < least_weight]
        await self._store.delete(KIND, *weak)
        return len(weak)

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
