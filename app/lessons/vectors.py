"""The vectors of lessons: made again if another embedder made them."""

from __future__ import annotations

from collections.abc import Sequence

from app.records.lessons import Lesson
from app.records.memory import Memory
from py_core.routing.embedder import Embedder

EMBEDDER_POLICY = "learning.embedder"
"""Names the embedder that made the vectors of the lessons."""


class LessonVectors:
    """The vectors of one memory's lessons, by one embedder. Its methods may raise StoreError, EmbedderError."""

    def __init__(self, memory: Memory, embedder: Embedder) -> None:
        self._memory, self._embedder = memory, embedder

    @property
    def are_ours(self) -> bool:
        """True if this embedder made the vectors that are stored."""
        made_by = self._memory.policies.look(EMBEDDER_POLICY)
        return made_by is not None and made_by.value == self._embedder.meaning_fingerprint

    async def claim(self) -> None:
        """Name this embedder as the one that makes the vectors."""
        if not self.are_ours:
            fingerprint = self._embedder.meaning_fingerprint
            await self._memory.policies.set(EMBEDDER_POLICY, fingerprint, confidence=1.0, source="instant")

    async def renew(self, lessons: Sequence[Lesson]) -> None:
        """Give a vector to those of these lessons that have none; to all, if another embedder made the vectors.
        lessons: in that case all lessons."""
        again = not self.are_ours
        lessons = [one for one in lessons if again or one.vector is None]
        if lessons:
            meanings = await self._embedder.meanings([one.question for one in lessons])
            for one, meaning in zip(lessons, meanings, strict=True):
                await self._memory.lessons.edit(one.id, vector=meaning.vector)
        if again and lessons:  # named last: if this is interrupted, all are embedded again
            await self.claim()
