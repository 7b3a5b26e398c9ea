"""The loops that learn in idle times, over one runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.consolidation.deep_loop import DeepLoop
from app.consolidation.idle_work import Loop
from app.consolidation.preparation import Preparation
from py_core.messages import Message

if TYPE_CHECKING:
    from app.runtime import Runtime

LESSONS = 8
"""The number of new lessons from which a training runs: until then each is answered from its imprint."""
ANSWERS = 30
"""The number of new answers from which the deep loop runs."""
LIKED = 4
"""The number of newly liked answers after which the style is learned again."""
DEEP_SECONDS = 24 * 3600.0


def idle_loops(runtime: Runtime) -> list[Loop]:
    """Return the loops in order of precedence: the first that has something to learn runs first."""
    loops = [
        Loop("preparation", Preparation(runtime), 1, "", 0.0),
        Loop("deep", DeepLoop(runtime), ANSWERS, Message("idle.answers", "answers"), DEEP_SECONDS),
    ]
    if runtime.consolidation is not None:
        loops.insert(1, Loop("background", runtime.consolidation, LESSONS, Message("idle.facts", "facts")))
    if runtime.style is not None:
        loops.append(Loop("style", runtime.style, LIKED, Message("idle.liked-answers", "answers that you liked")))
    return loops
