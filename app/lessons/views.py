"""A lesson that changed something, as the page gets it: plain data."""

from __future__ import annotations

from typing import TypedDict

from app.records.lessons import Source


class Before(TypedDict):
    """cut: only the beginning of the answer was kept."""

    text: str
    cut: bool


class Given(TypedDict):
    """An answer, and when it was given."""

    text: str
    created: float


class Story(TypedDict):
    """before: None if it was not kept. earlier: the answers that were taught for the same question, the oldest first.
    last: the latest answer that the lesson gave. nllBefore, nllAfter: None if the model has not learned it."""

    question: str
    answer: str
    source: Source
    created: float
    before: Before | None
    earlier: list[Given]
    last: Given | None
    nllBefore: float | None
    nllAfter: float | None
