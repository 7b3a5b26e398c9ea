"""Computes once for each model, in a pause, its directions and the imprints of earlier lessons.

With them a lesson takes a moment; without them the first lesson would wait for a minute or two.
"""

from __future__ import annotations

from app.consolidation.idle_work import Report
from app.lessons.service import LearningService
from py_core.engine.scheduler import Priority
from py_core.messages import Message

KNOWING = Message("training.knowing", "gets to know this model")
LEARNING = Message("training.relearning", "learns what you taught for this model")


class Preparation:
    """A loop of the idle times (app/consolidation/idle_work.py), for the model that runs."""

    def __init__(self, learning: LearningService) -> None:
        self._learning = learning

    async def waiting(self) -> int:
        """1 if the model is not prepared."""
        return int(not await self._learning.imprints.is_prepared(self._learning.memory))

    async def is_begun(self) -> bool:
        return False

    async def run(self, report: Report) -> None:
        """Raises BackendError, StoreError."""
        learning = self._learning
        with learning.imprints.telling(lambda read, texts: report(read, texts, KNOWING)):
            await learning.imprints.directions(learning.memory, Priority.IDLE)
        await learning.relearn(lambda done, total: report(done, total, LEARNING), priority=Priority.IDLE)
