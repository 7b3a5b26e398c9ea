"""Lessons in the prompt, for the model to read when the gate is not sure that a lesson answers the message.

A small adapter that was trained to read such facts (app/training/reader.py) either answers with one of them, as it
was taught, or answers as if they were not there.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_FACTS = 3
"""More facts confuse a small model, and the right one is among the three nearest."""


def fact_of(question: str, answer: str) -> str:
    """A lesson as a line of the prompt."""
    return _line(f"{question} {answer}")


def reading_message(question: str, facts: Sequence[str]) -> str:
    """The user's message, with the facts before it."""
    lines = "\n".join(f"- {fact}" for fact in facts)
    return f"Facts:\n{lines}\n\nUsing the facts, answer the question: {question.strip()}"


def answer_in(said: str, answers: Sequence[str], whole: bool = True) -> int | None:
    """The index of the answer that was said, word by word; without `whole`, of the answer that was begun. None if none.

    Spaces and line breaks do not count, as the prompt has each fact in one line.
    """
    words = _line(said)
    for number, answer in enumerate(map(_line, answers)):
        if words == answer or (not whole and answer.startswith(words)):
            return number
    return None


def _line(text: str) -> str:
    return " ".join(text.split())
