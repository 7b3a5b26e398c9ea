"""Asks a lesson's question again, beside the conversation. Nothing of it is kept, and no answer waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from app.generation.assistant import Assistant
from app.generation.learned_answer import LEARNED_SAMPLING
from app.generation.stop_token import StopToken
from app.lessons.chat_lessons import paused, recall
from app.lessons.match import recall_event
from app.protocol import AnswerEvent, Delta, Done, Recall, Replacement
from py_core.loading import Model
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime

MOST_TOKENS = 100
"""The most tokens of an answer without what was taught: it may say anything."""


class LessonTrial:
    """One question. The words are always the likeliest, so that answers with and without the lessons can be
    compared."""

    def __init__(self, runtime: Runtime, new_assistant: Callable[[], Assistant], model: Model) -> None:
        """new_assistant: makes an assistant like those of the conversations, with all that was learned."""
        self._runtime, self._new_assistant, self._model = runtime, new_assistant, model
        self._stop = StopToken()

    async def ask(self, id: str, learned: bool) -> AsyncIterator[Recall | AnswerEvent]:
        """learned: answer with all that was learned, as a chat's first message; else with the plain model. Recall comes
        if a lesson answers. Raises StoreError, BackendError, ContextFullError."""
        lesson = await self._runtime.memory.lessons.get(id)
        if lesson is None:
            raise StoreError("record", "lessons.forgotten", "This was forgotten.")
        plain = None if learned else Assistant(self._model, LEARNED_SAMPLING, MOST_TOKENS)
        assistant = plain or self._new_assistant()
        try:
            with self._runtime.answering(), paused(self._runtime):
                recalled = None
                if learned:
                    question = lesson.question
                    recalled = await recall(self._runtime, assistant, question, self._stop)
                if self._stop.is_stopped:
                    yield Done("stopped")
                    return
                if recalled is not None:
                    yield recall_event(recalled)
                if recalled is not None and recalled.done is not None:
                    said = assistant.give(lesson.question, recalled.done)
                else:
                    heads = recalled.heads if recalled else ()
                    said = assistant.respond(lesson.question, sampling=LEARNED_SAMPLING, heads=heads, stop=self._stop)
                async with aclosing(said) as events:  # type: ignore[type-var]
                    async for event in events:
                        if isinstance(event, Delta | Replacement | Done):
                            yield event
        finally:
            assistant.close()

    def stop(self) -> None:
        """End the running answer."""
        self._stop.stop()
