"""Answers a message exactly if one of the tools is sure of the question.

    answer_exactly("what is 15% of 80", datetime.now()).words     # "15% of 80 = 12"

A tool is a module with `answer(question) -> Exact | None`; TOOLS lists them in the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from py_core.tools import arithmetic, counting, date_questions, durations, equations, proportions, units
from py_core.tools.question import Exact, Question, question_of

TOOLS: tuple[Callable[[Question], Exact | None], ...] = (
    units.answer,
    date_questions.answer,
    counting.answer,
    durations.answer,
    proportions.answer,
    equations.answer,
    arithmetic.answer,
)


def answer_exactly(text: str, now: datetime) -> Exact | None:
    """now: the person's local time. Returns None if no tool is sure; then the model answers."""
    question = question_of(text, now)
    for answer in TOOLS:
        if (exact := answer(question)) is not None:
            return exact
    return None
