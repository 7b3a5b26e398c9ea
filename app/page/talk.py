"""The state that the apis of one page share: its own conversation, which other pages neither stop nor see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.chat.conversation import Conversation
from app.generation.answer_settings import CALLS_POLICY, PYTHON_POLICY
from app.generation.assistant import Assistant
from app.generation.stop_token import StopToken
from app.lessons.chat_lessons import paused
from app.lessons.forgotten_lessons import ForgottenLessons
from app.page.offered_tools import OfferedTools
from app.records.lessons import Lesson
from app.runtime import Runtime
from py_core.adapters.lora import LoraAdapter
from py_core.loading import Model
from py_core.messages import Words

if TYPE_CHECKING:
    from app.generation.tool_loop import ToolUse
    from app.lessons.trial import LessonTrial


class PageTalk:
    """turn: a lock for everything that must not run beside an answer of this page. asked: the answers that have not
    ended yet. called: the calls of tools that run again, beside the conversation. trial: the last question of a lesson
    beside the conversation. measurement: stops all measurements that were asked for. extraction: stops the last table
    that was asked for. offered: the tools that the page runs."""

    def __init__(self, runtime: Runtime, new_assistant: Callable[[], Assistant]) -> None:
        """new_assistant: makes one for the model that runs; raises BackendError if none runs yet."""
        self.runtime, self.new_assistant = runtime, new_assistant
        self.turn = asyncio.Lock()
        self.asked: set[StopToken] = set()
        self.called: set[StopToken] = set()
        self.trial: LessonTrial | None = None
        self.measurement, self.extraction = StopToken(), StopToken()
        self.forgotten = ForgottenLessons(runtime)
        self.offered = OfferedTools()
        self._conversation: Conversation | None = None
        self._requests = set[asyncio.Task[Any]]()

    def conversation(self) -> Conversation:
        """Return the conversation. Raises BackendError if no model runs yet."""
        if self._conversation is None:
            self._conversation = Conversation(self.new_assistant(), self.runtime, self.tools)
        return self._conversation

    def model(self) -> Model:
        """Return the model that runs. Raises BackendError."""
        return self.conversation().assistant.model

    async def tools(self, conversation: str | None) -> ToolUse | None:
        """Return the tools that answers of a conversation may call; None unless the setting is on."""
        if not self._allows(CALLS_POLICY):
            return None
        from app.page.tools import page_tools  # late: few pages need them

        return await page_tools(self.runtime, conversation, self.offered, runs_python=self._allows(PYTHON_POLICY))

    def _allows(self, name: str) -> bool:
        memory = self.runtime.memory_if_open
        policy = None if memory is None else memory.policies.look(name)
        return policy is not None and policy.value is True

    def note_activity(self) -> None:
        """Note that the person does something, here or in another tab: idle learning pauses for a while."""
        if self.runtime.idle is not None:
            self.runtime.idle.note_activity()

    def stop(self) -> None:
        """End every answer asked for so far, and every call that runs again."""
        self.stop_answers()
        for called in self.called:
            called.stop()

    def stop_answers(self) -> None:
        """End every answer asked for so far."""
        for asked in self.asked:
            asked.stop()

    def stop_trial(self) -> None:
        """End the answer of `trial`, if one runs."""
        if self.trial is not None:
            self.trial.stop()

    async def begin(self) -> None:
        """End every answer asked for so far, and forget the conversation."""
        self.stop()
        async with self.turn:
            if self._conversation is not None:
                self._conversation.reset()

    async def close(self) -> None:
        """Close the page's conversation: end its answers, and give back what the model keeps of it."""
        self.stop()
        self.stop_trial()
        self.measurement.stop()
        self.extraction.stop()
        self.offered.close()
        for request in self._requests:
            request.cancel()
        async with self.turn:
            self.forgotten.close()
            if self._conversation is not None:
                self._conversation.close()

    @contextmanager
    def requested(self) -> Iterator[None]:
        """The running task answers a request of the API: it ends with the page, and nothing is learned meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            with self.runtime.answering(), paused(self.runtime):
                yield
        finally:
            self._requests.discard(task)

    def leave_adapter(self, name: str) -> None:
        """Prepare for the adapter to be forgotten: an answer that it gives ends."""
        if self._conversation is not None:
            self._conversation.assistant.leave_adapter(name)

    async def leave_out(self, lessons: Sequence[Lesson]) -> None:
        """Do what Conversation.leave_out does."""
        if self._conversation is not None:
            await self._conversation.leave_out(lessons)

    def leaves_out(self) -> Words:
        """Return what Assistant.leaves_out returns."""
        return self._conversation.assistant.leaves_out if self._conversation is not None else ""

    def adapter(self) -> LoraAdapter | None:
        """Return the adapter with which the conversation answers."""
        return self._conversation.assistant.adapter if self._conversation is not None else None
