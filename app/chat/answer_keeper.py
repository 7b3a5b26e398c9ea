"""Keeps an answer: in the conversation, and in the memory with its trajectory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.answer import Answer
from app.chat.chat_question import ChatQuestion
from app.chat.conversation_tree import ConversationTree
from app.chat.trajectory_recorder import TrajectoryRecorder
from app.generation.assistant import Assistant
from app.lessons.service import INSTANT_POLICY
from app.protocol import Stored
from app.records.branches import Turn
from app.records.memory import Memory
from app.records.sessions import Session
from app.routing.service import Routed

if TYPE_CHECKING:
    from app.runtime import Runtime

_OF_ONE_ANSWER = ("adapter", "calls", "found", "lesson", "passages", "taught", "card", "tool")
"""Details that another answer to the same message does not inherit."""


class AnswerKeeper:
    """Keeps the answers of one conversation."""

    def __init__(self, assistant: Assistant, runtime: Runtime, tree: ConversationTree) -> None:
        self._assistant, self._runtime, self._tree = assistant, runtime, tree
        self.recorder = TrajectoryRecorder(assistant, runtime)

    async def keep(
        self, answer: Answer, question: ChatQuestion, route: Routed | None, is_gone: Callable[[], bool]
    ) -> Stored | None:
        """Return None if the answer is not stored: nothing was said, or the conversation was deleted meanwhile
        (`is_gone`).

        route: the message's, also if this is another try. Raises StoreError; the answer is in the conversation then.
        """
        if question.rest:
            return await self._keep_rest(answer, question, is_gone)
        before = question.replaced.details if question.replaced else {}
        details = {name: value for name, value in before.items() if name not in _OF_ONE_ANSWER} | answer.details()
        made = Turn("assistant", answer.said, details=details)
        if answer.is_shown:
            self._tree.add([made] if question.again else [Turn("user", answer.text), made], question.after)
        memory = await self._runtime.opened_memory()
        if memory is None or is_gone():
            return None
        session: Session | None = None
        try:
            if answer.is_shown:
                state = {"state": {"agent": answer.routed.agent.id}} if answer.routed else {}
                session = await self._tree.keep(memory, state)
        finally:  # an answer that is not stored is in the log, too
            self._record(memory, answer, made, session.id if session else "", route)
        if session is None:
            return None
        self.recorder.asked_again(memory, before.get("request", ""))
        if answer.routed is not None and self._runtime.routing is not None:
            await self._runtime.routing.used(answer.routed)
        if answer.match is not None and self._runtime.learning is not None:
            await self._runtime.learning.used(answer.match)
        return self._stored(session, answer, answer.id if answer.by == "model" else "")

    async def _keep_rest(self, answer: Answer, question: ChatQuestion, is_gone: Callable[[], bool]) -> Stored | None:
        """Keep a continued answer: it replaces its own beginning."""
        turn = question.replaced
        if turn is None or not answer.is_more:
            return None
        details = dict(turn.details)
        if (done := answer.done) is not None:
            details |= {"reason": done.reason, "tokens": details.get("tokens", 0) + done.new_tokens}
            if done.thought:
                seconds = (details.get("thinking") or {}).get("seconds", 0.0) + done.thought_seconds
                details["thinking"] = {"text": done.thought, "seconds": seconds}
        else:
            details.pop("reason", None)  # it failed
        memory = await self._runtime.opened_memory()
        if is_gone():
            return None
        await self._tree.replace(memory, replace(turn, content=answer.said, details=details), turn.content)
        session = self._tree.session
        if memory is None or session is None:
            return None
        self.recorder.went_on(memory, details["request"], answer.said, details, answer.done)
        return self._stored(session, answer, details["request"])

    def _stored(self, session: Session, answer: Answer, request: str) -> Stored:
        question, given = (turns := self._tree.branches.path())[-2:]
        return Stored(session.id, len(turns), answer.said, request, question.number, given.number)

    def _record(self, memory: Memory, answer: Answer, made: Turn, session: str, route: Routed | None) -> None:
        learning = self._runtime.learning
        trajectory = answer.trajectory(
            made.details, route, session=session, learnable=bool(session) and memory.policies.is_on(INSTANT_POLICY),
            model=learning.base_sha256[:16] if learning else self._assistant.model.config.name,
            backend=self._assistant.model.engine.capabilities.backend,
        )  # fmt: skip
        self.recorder.answered(memory, trajectory)
