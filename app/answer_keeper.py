"""Keeps an answer: in the conversation, and in the memory with its log entry and its trajectory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.answer import Answer
from app.assistant import Assistant
from app.chat_question import ChatQuestion
from app.conversation_tree import ConversationTree
from app.protocol import Done, Stored
from app.routing_service import Routed
from app.runtime import Runtime
from app.trajectory_recorder import TrajectoryRecorder
from app.turn_details import answer_details, card_details, taught_details
from app.turn_messages import agent_of
from py_core.memory.branches import Turn
from py_core.memory.memory import Memory

_OF_ONE_ANSWER = ("adapter", "found", "lesson", "passages", "taught", "card", "tool")
"""Details that another answer to the same message does not take over."""


class AnswerKeeper:
    """Of one conversation."""

    def __init__(self, assistant: Assistant, runtime: Runtime, kept: ConversationTree) -> None:
        self._assistant, self._runtime, self._kept = assistant, runtime, kept
        self.recorder = TrajectoryRecorder(assistant, runtime)

    async def keep(
        self, answer: Answer, asked: ChatQuestion, last: Routed | None, is_gone: Callable[[], bool]
    ) -> Stored | None:
        """None where it is not stored: nothing was said, or the conversation was deleted meanwhile (`is_gone`).

        last: the route of the last message that had one. Raises StoreError; the answer is in the conversation then.
        """
        details = answer_details(answer.id, answer.routed, answer.done, answer.recalled, answer.material)
        if answer.talked is not None:
            details["taught"] = [taught_details(one) for one in answer.talked.learned]
            if answer.talked.card is not None:
                details["card"] = card_details(answer.talked.card)
        if answer.computed is not None:
            details["tool"] = answer.computed.details()
        before = asked.replaced.details if asked.replaced else {}
        details = {**{name: value for name, value in before.items() if name not in _OF_ONE_ANSWER}, **details}
        made = Turn("assistant", answer.said, details=details)
        if answer.is_shown:
            self._kept.add([made] if asked.again else [Turn("user", answer.text), made], asked.after)
        memory = await self._runtime.opened_memory()
        if memory is None or is_gone():
            return None
        memory.witness.record(answer.witness_entry(self._assistant.model.engine.capabilities.backend))
        if not answer.is_shown:
            return None
        session = await self._kept.keep(memory, {"state": {"agent": answer.routed.agent.id}} if answer.routed else {})
        self._record(memory, answer, made, session.id, last if last is not None and last.text == answer.text else None)
        self.recorder.asked_again(memory, before.get("request", ""))
        if answer.routed is not None and self._runtime.routing is not None:
            await self._runtime.routing.used(answer.routed)
        if answer.recalled is not None and self._runtime.learning is not None:
            await self._runtime.learning.used(answer.recalled)
        question, given = (turns := self._kept.branches.path())[-2:]
        request = "" if answer.is_unread or answer.computed else answer.id
        return Stored(session.id, len(turns), answer.said, request, question.number, given.number)

    async def keep_more(self, turn: Turn, done: Done | None, said: str, is_gone: Callable[[], bool]) -> Stored | None:
        """Keep an answer that was gone on with in the place of its beginning. As of `keep`."""
        details = dict(turn.details)
        if done is not None:
            details |= {"reason": done.reason, "tokens": details.get("tokens", 0) + done.new_tokens}
            if done.thought:
                seconds = (details.get("thinking") or {}).get("seconds", 0.0) + done.thought_seconds
                details["thinking"] = {"text": done.thought, "seconds": seconds}
        else:
            details.pop("reason", None)  # it failed
        memory = await self._runtime.opened_memory()
        if is_gone():
            return None
        await self._kept.replace(memory, replace(turn, content=said, details=details), turn.content)
        session = self._kept.session
        if memory is None or session is None:
            return None
        self.recorder.went_on(memory, details["request"], said, details)
        question, given = (turns := self._kept.branches.path())[-2:]
        return Stored(session.id, len(turns), said, details["request"], question.number, given.number)

    def _record(self, memory: Memory, answer: Answer, made: Turn, session: str, routed: Routed | None) -> None:
        learning, routing = self._runtime.learning, self._runtime.routing
        model = learning.base_sha256[:16] if learning else self._assistant.model.config.name
        trajectory = answer.trajectory(session, model, made.details, routed)
        if trajectory.prompt_tokens or trajectory.lesson:  # the model made it, or it can be judged with its lesson
            self.recorder.answered(memory, trajectory, agent_of(made, routing.agents if routing else {}))
