"""The page's calls for its conversation: answer, stop, and continue a stored conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal, TypedDict

from app.chat.conversation import Conversation
from app.chat.turn_events import stored_turns
from app.generation.stop_token import StopToken
from app.page.calls import failure_of
from app.page.talk import PageTalk
from app.protocol import Card, Done, Event, StoredTurn
from py_core.messages import UserError

ROUTING_PATIENCE = 4.0
"""Seconds that a message waits for the router and the lessons to load; after that the plain assistant answers it."""


class ToolResult(TypedDict):
    """failed: `result` is a sentence about why."""

    result: str
    failed: bool


class TalkApi:
    """Each public method is a call of the page. Answers come as events (app/protocol.py): first the answer's own
    events, then Done or Failure, then Stored and Offer. After a failure of the kinds "ContextFullError",
    "CannotAnswerError", "StoreError" and "AgentError" nothing was changed, and the next message is answered. A page
    that leaves a stream before its end stops the answer."""

    def __init__(self, talk: PageTalk) -> None:
        self._talk = talk

    def respond(
        self, text: str, after: int | Literal["leaf"] | None = "leaf", agent: str | None = None,
        choice: str | None = None, table: str | None = None,
    ) -> AsyncIterator[Event]:  # fmt: skip
        """Answer a message, after the turn `after`: an edited message has the `after` of the original, None if that was
        the first message. agent: the id of the agent that must answer, if the router does not choose. choice: the agent
        that answers in a chat that is not stored yet, None if nothing was chosen. table: the id of an attached table,
        for whose analysis the model writes Python."""
        return self._answer(
            lambda talk, stop: _chosen(talk, choice).respond(text, after=after, agent=agent, table=table, stop=stop)
        )

    def retry(
        self, after: int | None = None, agent: str | None = None, choice: str | None = None
    ) -> AsyncIterator[Event]:
        """Give another answer to a message, stored as a variant: to the message with the number `after`, or the last
        one. agent, choice: as in `respond`."""
        return self._answer(lambda talk, stop: _chosen(talk, choice).retry(after, agent=agent, stop=stop))

    def continue_answer(self) -> AsyncIterator[Event]:
        """Continue the last answer, which was stopped, cut off at a limit, interrupted, or repeated itself. Thought and
        Delta are the new text, Replacement is all of it, and Stored has the number that the answer had before. A
        Failure of the kind "CannotAnswerError" if there is nothing to continue."""
        return self._answer(lambda talk, stop: talk.continue_answer(stop=stop))

    async def call_tool(self, name: str, given: dict[str, Any]) -> ToolResult:
        """Run a call of an answer again, beside the conversation: nothing of it is kept. `stop` ends it."""
        from app.generation.tool_loop import run_tool  # late: few pages need it
        from app.tools import ToolFailure

        use, stop = await self._talk.tools(self._talk.conversation().session_id), StopToken()
        if use is None or name not in use.tools:
            raise UserError(
                "tools.not-here", "The tool {name} is not there. Settings, Answers, switches tools on.", name=name
            )
        self._talk.called.add(stop)
        try:
            return {"result": await run_tool(use.tools[name], given, use.limits.seconds, stop), "failed": False}
        except ToolFailure as failure:
            return {"result": str(failure), "failed": True}
        finally:
            self._talk.called.discard(stop)

    async def try_lesson(self, id: str, learned: bool) -> AsyncIterator[Event]:
        """Ask a lesson's question again, beside the conversation: nothing of it is kept. learned: with all that was
        learned; else the plain model. One trial at a time: a new one ends the one before."""
        from app.lessons.trial import LessonTrial  # late, as in app/runtime.py

        talk = self._talk
        talk.stop_trial()
        try:
            trial = talk.trial = LessonTrial(talk.runtime, talk.new_assistant, talk.model())
            async with aclosing(trial.ask(id, learned)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event
        except Exception as error:
            yield failure_of(error)

    def stop(self) -> None:
        """End every answer asked for so far, after the present token."""
        self._talk.stop()

    async def begin(self) -> None:
        """End every answer asked for so far, and forget the conversation."""
        await self._talk.begin()

    async def resume(self, id: str) -> Sequence[StoredTurn]:
        """Continue a stored conversation, after the running answer, once the memory is open. Returns the shown
        turns."""
        talk = self._talk
        talk.stop_answers()
        await talk.runtime.memory_stage.wait()
        async with talk.turn:
            return stored_turns(id, await talk.conversation().resume(id))

    async def _answer(self, begin: Callable[[Conversation, StopToken], AsyncIterator[Event]]) -> AsyncIterator[Event]:
        talk, stop = self._talk, StopToken()
        talk.asked.add(stop)
        async with talk.turn:  # the page may ask again before an answer that it stopped has ended
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ROUTING_PATIENCE):
                        await talk.runtime.routing_stage.wait()
                        await talk.runtime.learning_stage.wait()
                if stop.is_stopped:
                    yield Done("stopped")
                    return
                async with aclosing(begin(talk.conversation(), stop)) as events:  # type: ignore[type-var]
                    async for event in events:
                        if isinstance(event, Card) and event.kind == "forgotten":
                            talk.forgotten.note(event.originals)
                        yield event
            except Exception as error:
                yield failure_of(error)
            finally:
                talk.asked.discard(stop)


def _chosen(talk: Conversation, choice: str | None) -> Conversation:
    talk.choose_agent(choice)
    return talk
