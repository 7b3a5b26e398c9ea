"""The turns of a conversation that the model reads again."""

from __future__ import annotations

from typing import Any

from app.chat.turn_messages import messages_of
from app.records.branches import Turn

LONG = "I am happy to go on helping you with all of your questions."


def pair(question: str, answer: str, **details: Any) -> list[Turn]:
    return [Turn("user", question), Turn("assistant", answer, details=details)]


def read(turns: list[Turn]) -> list[str]:
    return [message["content"] for message in messages_of(turns, {})]


def test_answers_that_loop_or_repeat_an_earlier_one_are_not_read_again() -> None:
    looped = pair("a", "no no no", reason="loop")
    assert read([*pair("hello", LONG), *looped, *pair("b", f"{LONG}\n"), *pair("c", "Yes."), *pair("d", "Yes.")]) == [
        "hello", LONG, "c", "Yes.", "d", "Yes.",
    ]  # fmt: skip


def test_what_the_memory_said_and_what_was_forgotten_is_not_read_and_an_open_question_is() -> None:
    talked, forgotten = pair("remember that ...", "I will.", taught=[]), pair("the code?", "It is 4471.", unread=True)
    assert read([*talked, *forgotten, *pair("hello", "Hi."), Turn("user", "and now?")]) == ["hello", "Hi.", "and now?"]
