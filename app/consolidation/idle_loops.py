"""The loops that learn in idle times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.consolidation.deep_loop import DeepLoop
from app.consolidation.idle_work import Loop
from app.consolidation.preparation import Preparation
from app.lessons.service import LearningService
from app.records.memory import Memory
from py_core.messages import Message
from py_core.routing.embedder import Embedder

if TYPE_CHECKING:  # what trains is imported when it is opened
    from app.consolidation.service import ConsolidationService

LESSONS = 8
"""The number of new lessons from which a training runs: until then each is answered from its imprint."""
ANSWERS = 30
"""The number of new answers from which the deep loop runs."""
DEEP_SECONDS = 24 * 3600.0


def idle_loops(
    memory: Callable[[], Memory], embedder: Callable[[], Embedder | None], learning: LearningService | None,
    consolidation: ConsolidationService | None,
) -> list[Loop]:  # fmt: skip
    """Return the loops in order of precedence: the first that has something to learn runs first."""
    loops = [] if learning is None else [Loop("preparation", Preparation(learning), 1, "", 0.0)]
    if consolidation is not None:
        loops.append(Loop("background", consolidation, LESSONS, Message("idle.facts", "facts")))
    deep = DeepLoop(memory, embedder, learning)
    loops.append(Loop("deep", deep, ANSWERS, Message("idle.answers", "answers"), DEEP_SECONDS))
    return loops
