"""The loops that learn while nobody waits, over the services of one model."""

from __future__ import annotations

from app.deep_loop import DeepLoop
from app.idle_work import Loop
from app.services import Services

ANSWERS = 30
"""So many new answers are worth a look at all of them."""
DEEP_SECONDS = 24 * 3600.0


def idle_loops(services: Services) -> list[Loop]:
    """The first that has something to learn runs first."""
    return [Loop("deep", DeepLoop(services), ANSWERS, "answers", DEEP_SECONDS)]
