"""What the assistant has said of an answer so far."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from app.generation.assistant import Assistant
from app.protocol import AnswerEvent, Context, Delta, Done, Thought


@dataclass
class Heard:
    """failure: what ended it. is_more: the model said something."""

    said: str = ""
    done: Done | None = None
    failure: Exception | None = None
    is_more: bool = False

    async def all_of(
        self, answering: AsyncIterator[AnswerEvent], assistant: Assistant
    ) -> AsyncIterator[AnswerEvent | Context]:
        """What the assistant says, and before the first of it what is in the prompt. It raises nothing."""
        known = assistant.context
        try:
            async with aclosing(answering) as events:  # type: ignore[type-var]
                async for event in events:
                    if assistant.context is not None and assistant.context is not known:
                        known = assistant.context
                        yield known
                    self._take(event)
                    yield event
        except Exception as error:
            self.failure = error

    def _take(self, event: AnswerEvent) -> None:
        if isinstance(event, Done):
            self.done = event
            if event.prompt_tokens or event.text:
                self.said, self.is_more = event.text, self.is_more or event.new_tokens > 0
        elif isinstance(event, Delta | Thought):
            self.said += event.text if isinstance(event, Delta) else ""
            self.is_more = True
