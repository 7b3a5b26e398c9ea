"""The effect of a lesson: what the model said before, what the person wants to hear, and what it says now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.lessons.service import LearningService
from app.records.lessons import Lesson
from app.records.memory import Memory
from py_core.learning.trajectories import KEPT_TEXT

if TYPE_CHECKING:
    from app.lessons.views import Story


async def story_of(lesson: Lesson, memory: Memory, learning: LearningService | None) -> Story:
    """Raises StoreError."""
    before = lesson.before or await _corrected(lesson, memory)
    gave = next((one for one in await memory.trajectories.of_lesson(lesson.id) if one.answered), None)
    earlier = [one for one in await memory.lessons.all() if one.replaced_by == lesson.id]
    nll = await learning.imprint_nll(lesson) if learning is not None else None
    return {
        "question": lesson.question,
        "answer": lesson.answer,
        "source": lesson.source,
        "created": lesson.created,
        "before": {"text": before, "cut": len(before) >= KEPT_TEXT} if before else None,
        "earlier": [{"text": one.answer, "created": one.created} for one in earlier],
        "last": None if gave is None else {"text": gave.answered, "created": gave.created},
        "nllBefore": nll[0] if nll else None,
        "nllAfter": nll[1] if nll else None,
    }


async def _corrected(lesson: Lesson, memory: Memory) -> str:
    """Return the corrected answer of a lesson from a version that did not keep it: from the trajectory of the answer,
    which stays for some months."""
    if lesson.source != "corrected":
        return ""
    for one in await memory.trajectories.all():
        if any(effect["kind"] == "taught" and effect["id"] == lesson.id for effect in one.effects):
            return one.answered
    return ""
