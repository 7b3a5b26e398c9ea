"""Computes once for each model, in a pause, its directions and the imprints of earlier lessons.

With them a lesson takes a moment; without them the first lesson would wait for a minute or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.consolidation.idle_work import Report
from py_core.engine.scheduler import Priority
from py_core.messages import Message

if TYPE_CHECKING:
    from app.runtime import Runtime

KNOWING = Message("training.knowing", "gets to know this model")
LEARNING = Message("training.relearning", "learns what you taught for this model")


class Preparation:
    """A loop of the idle times (app/consolidation/idle_work.py), for the model that runs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def waiting(self) -> int:
        """1 if the model is not prepared."""
        learning = self._runtime.learning
        return int(learning is not None and not await learning.imprints.is_prepared(learning.memory))

    async def is_begun(self) -> bool:
        return False

    async def run(self, report: Report) -> None:
        """Raises BackendError, StoreError."""
        learning = self._runtime.learning
        if learning is None:
            return
        with learning.imprints.telling(lambda read, texts: report(read, texts, KNOWING)):
            await learning.imprints.directions(learning.memory, Priority.IDLE)
        await learning.relearn(lambda done, total: report(done, total, LEARNING), priority=Priority.IDLE)
