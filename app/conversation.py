"""A conversation that is routed and stored: each message goes to an agent, and the turns are kept in the memory.

conversation = Conversation(assistant, services)    # without a memory or a router it works, too
async for event in conversation.respond("why does my page crash"):   # Routed, Recalled, Delta ..., Done, Stored
    ...

The memory is shared with other tabs and programs. What they delete leaves the model's context at once; what they add to
this conversation is taken over before the next answer.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from app.answer_records import Answer
from app.assistant import CHAT_SAMPLING, Assistant, Delta, Done, Reading, Thought, assistant_message, user_message
from app.fact_reader import read_facts
from app.learning_service import Learned
from app.lesson_imprints import LessonError
from app.recalled import Recalled, Unsure
from app.routing_service import Routed
from app.services import Services
from app.trajectory_recorder import TrajectoryRecorder
from app.turn_details import answer_details, taught_details, title_of
from py_core.backends.base import BackendError
from py_core.learning.teaching import Told, asked_to_remember, lesson_of
from py_core.memory.errors import StoreError
from py_core.memory.lessons import KIND as LESSON
from py_core.memory.memory import Memory
from py_core.memory.rows import EVERYTHING, Change
from py_core.memory.sessions import KIND as SESSION
from py_core.memory.sessions import Session, Turn
from py_core.routing.agents import Agent
from py_core.routing.embedder import EmbedderError
from py_core.sampling import SamplingParams

RETRY_TEMPERATURE = 0.7
"""The temperature of another answer to the same message: the likeliest tokens looped, so others must get a chance."""


@dataclass(frozen=True)
class ChangedElsewhere:
    """Others have changed the stored conversation. `turns`: all that it holds now; None where it was deleted."""

    turns: Sequence[Turn] | None


@dataclass(frozen=True)
class Stored:
    """Question and answer are in the memory, as the last of so many turns. `answer` is what is stored of it, and
    `request` the answer's id, by which it can be judged; "" where no model made it."""

    session: str
    turns: int
    answer: str
    request: str = ""


Event = ChangedElsewhere | Routed | Recalled | Learned | Reading | Thought | Delta | Done | Stored


class Conversation:
    """A conversation; an assistant has one at a time. It reports failures of memory and router to the services."""

    def __init__(self, assistant: Assistant, services: Services) -> None:
        self.assistant = assistant
        self.turns: list[Turn] = []
        """The turns that this tab knows."""
        self.recorder = TrajectoryRecorder(assistant, services)
        self._services = services
        self._stopped = False
        self._answering = False
        self._deleted = False
        self._session: Session | None = None
        self._last: Routed | None = None
        self._recalled: Recalled | None = None  # the lesson that the running answer gives
        self._resumed_agent: str | None = None  # who answered last, in a resumed conversation
        services.listen(self._on_change)

    def respond(self, text: str) -> AsyncIterator[Event]:
        """Raises what Assistant.respond raises. The turn is stored after Done."""
        return self._answer(text)

    def retry(self) -> AsyncIterator[Event]:
        """Another answer to the last message, in place of the one there is, by the same agent.

        Raises ValueError where nothing was said, and what Assistant.respond raises.
        """
        return self._answer(None)

    async def _answer(self, text: str | None) -> AsyncIterator[Event]:
        with self._services.answering():
            async with aclosing(self._respond(text)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def _respond(self, text: str | None) -> AsyncIterator[Event]:
        """text: None for another answer to the last message."""
        self._stopped, self._answering = False, True
        try:
            if (change := await self._follow()) is not None:
                yield change
            if text is not None and (told := self._told(text)) is not None:
                async for learned in self._learn(text, told):
                    yield learned
                return
            again, routed = text is None, None
            if text is None:
                text, agent = self._last_question()
                if _is_unread(self.turns[-1]):
                    self.assistant.tell(text, self.turns[-1].content)  # it is about to be replaced
                sampling = _retry_sampling(agent)
                if self._last is not None and self._last.text == text:
                    yield self._last
                # Whoever asks for another answer than what was taught gets the model's own.
                recalled = None if self.turns[-1].details.get("lesson") else await self._recall(text)
            else:
                routed = await self._route(text)
                agent, sampling = (routed.agent if routed else None), None
                recalled = await self._recall(text)
            if routed is not None:
                yield routed
            if recalled is not None:
                agent = None  # a lesson is given by the plain assistant, as it was learned
                yield recalled
            self._recalled = recalled
            if self._stopped:
                yield Done("stopped")
                return
            said, done, failure = "", None, None
            id = routed.id if routed else uuid.uuid4().hex
            try:
                if recalled is not None and recalled.done is not None:
                    answering = self.assistant.give(text, recalled.done, again)
                else:
                    heads = recalled.heads if recalled else ()
                    answering = self.assistant.respond(text, agent, again=sampling, heads=heads)
                with self._paused():
                    async with aclosing(answering) as events:  # type: ignore[type-var]
                        async for event in events:
                            if isinstance(event, Delta):
                                said += event.text
                            elif isinstance(event, Done):
                                done, said = event, event.text
                            yield event
            except Exception as error:
                failure = error
            finally:
                stored = await self._remember(Answer(id, text, routed, said, done, failure, again, recalled))
            if stored is not None:
                yield stored
            if failure is not None:
                raise failure
        finally:
            self._answering, self._recalled = False, None
            if self._deleted:
                self.reset()

    def stop(self) -> None:
        """End the running answer, also before it has begun."""
        self._stopped = True
        self.assistant.stop()

    def reset(self) -> None:
        """Start a new conversation; the old one stays in the memory."""
        self.assistant.reset()
        self.turns = []
        self._session = self._last = self._resumed_agent = None
        self._deleted = False

    async def resume(self, session_id: str) -> list[Turn]:
        """Continue a stored conversation. Raises StoreError where there is none."""
        memory = self._services.memory
        session = await memory.sessions.get(session_id) if memory else None
        if memory is None or session is None:
            if self._services.memory_state == "locked":
                raise StoreError("locked")
            raise StoreError("record", "This conversation was deleted.")
        if self._session is not None and self._session.id == session_id:
            await self._follow()  # keeps what the model has read
        else:
            await self._take(session, memory)
        return await memory.sessions.turns(session_id)

    # ---- what others do to the stored conversation ----

    def _on_change(self, change: Change) -> None:
        """Deleted turns leave the context at once; a running answer ends first, and is not stored. An answer that gives
        a lesson ends where that is deleted."""
        if self._recalled is not None and (LESSON, self._recalled.lesson.id) in change.deletes:
            self.stop()
        key = (SESSION, self._session.id) if self._session else None
        if key in change.deletes or (change.cleared in (EVERYTHING, SESSION) and key not in change.puts):
            if self._answering:
                self._deleted = True
                self.stop()
            else:
                self.reset()

    async def _follow(self) -> ChangedElsewhere | None:
        """Take over what others stored in this conversation. None when there is nothing new."""
        known, memory = self._session, self._services.memory
        if known is None or memory is None:
            return None
        try:
            session = await memory.sessions.get(known.id)
            if session is None:
                self.reset()
                return ChangedElsewhere(None)
            if (session.turns, session.updated) == (known.turns, known.updated):
                return None
            before = [(turn.role, turn.content) for turn in self.turns]
            turns = await memory.sessions.turns(session.id)
            if [(turn.role, turn.content) for turn in turns] == before:
                self._session = session
                return None
            await self._take(session, memory)
            return ChangedElsewhere(tuple(self.turns))
        except StoreError as error:
            self._services.trouble(error)
            return None

    async def _take(self, session: Session, memory: Memory) -> None:
        turns = await memory.sessions.turns(session.id)
        self.reset()
        self.turns, self._session = turns, session
        messages = []
        for number, turn in enumerate(turns):
            answer = turns[number + 1] if number + 1 < len(turns) else None
            if _is_unread(turn) or (turn.role == "user" and answer is not None and _is_unread(answer)):
                continue
            if turn.role == "user":
                messages.append(user_message(turn.content, self._agent_of(answer)))
            else:
                messages.append(assistant_message(turn.content))
        self.assistant.reset(messages)
        agent = session.state.get("agent")
        self._resumed_agent = agent if isinstance(agent, str) else None

    def _agent_of(self, answer: Turn | None) -> Agent | None:
        routing = self._services.routing
        return routing.agents.get(answer.details.get("agent", "")) if routing and answer else None

    # ---- a turn ----

    def _last_question(self) -> tuple[str, Agent | None]:
        if len(self.turns) < 2:
            raise ValueError("There is no answer yet to try again.")
        question, answer = self.turns[-2:]
        return question.content, self._agent_of(answer)

    async def _route(self, text: str) -> Routed | None:
        if self._services.routing is None or not text.strip():
            return None
        try:
            agent = self._resumed_agent if self._last is None else self._services.routing.agent_of(self._last)
            self._last = await self._services.routing.route(text, agent)
            return self._last
        except (EmbedderError, StoreError) as error:
            self._services.trouble(error)
            return None

    def _told(self, text: str) -> Told | None:
        """What a message asks to remember, where that can be learned."""
        learning = self._services.learning
        statement = asked_to_remember(text) if learning is not None and learning.is_on else None
        return lesson_of(statement) if statement else None

    async def _learn(self, text: str, told: Told) -> AsyncIterator[Event]:
        """Learn it, and say so in place of the model."""
        learning, learned = self._services.learning, None
        assert learning is not None
        try:
            with self._paused():
                learned = await learning.teach(told.question, told.answer)
            said = f"I will remember that. When you ask \u201c{told.question}\u201d, I say: {learned.lesson.answer}"
        except (EmbedderError, StoreError, BackendError, LessonError) as error:
            said = f"I could not remember that. {error}"
        # The model does not read this turn, so that the lesson is gone from its context when it is forgotten.
        if learned is not None:
            yield learned
        done = Done("end", said)
        yield Delta(said)
        yield done
        stored = await self._remember(Answer(uuid.uuid4().hex, text, None, said, done, taught=learned))
        if stored is not None:
            yield stored

    async def _recall(self, text: str) -> Recalled | None:
        learning = self._services.learning
        try:
            if self._services.consolidation is not None:
                await self._services.consolidation.refresh()  # what it learned from may be gone
            if self._services.style is not None:
                await self._services.style.refresh()
            if learning is None:
                return None
            found = await learning.recall_or_read(text)
            if not isinstance(found, Unsure):
                return found
            with self._paused():
                return None if self._stopped else await read_facts(self.assistant, learning.memory, text, found)
        except (EmbedderError, StoreError, BackendError, LessonError) as error:
            self._services.trouble(error)
            return None

    def _paused(self) -> AbstractContextManager[None]:
        """While it is open nothing is done in the background."""
        return self._services.memory.background.paused() if self._services.memory else nullcontext()

    async def _remember(self, answer: Answer) -> Stored | None:
        if not answer.text.strip() or self._deleted:
            return None
        details, earlier = answer_details(answer.id, answer.routed, answer.done, answer.recalled), ""
        is_unread = answer.done is not None and not answer.done.prompt_tokens
        if is_unread:
            details["taught"] = taught_details(answer.taught) if answer.taught else None
        if answer.again:
            earlier = self.turns[-1].details.get("request", "")
            ended = ("adapter", "lesson", "taught")
            before = {name: value for name, value in self.turns[-1].details.items() if name not in ended}
            details = {**before, **details}
        turns = Turn("user", answer.text), Turn("assistant", answer.said, details=details)
        if answer.is_shown:
            self.turns = [*(self.turns[:-2] if answer.again else self.turns), *turns]
        memory = await self._services.opened_memory()
        if memory is None or self._deleted:
            return None
        try:
            memory.witness.record(answer.witness_entry(self.assistant.model.engine.capabilities.backend))
            if not answer.is_shown:
                return None
            session = await self._keep(memory, turns, answer.routed, answer.again)
            routed = self._last if self._last is not None and self._last.text == answer.text else None
            learning = self._services.learning
            model = learning.base_sha256[:16] if learning else self.assistant.model.config.name
            made = answer.trajectory(session.id, model, details, routed)
            if made.prompt_tokens:  # the model made it
                self.recorder.answered(memory, made, self._agent_of(turns[1]))
            self.recorder.asked_again(memory, earlier)
            if answer.routed is not None and self._services.routing is not None:
                await self._services.routing.used(answer.routed)
            if answer.recalled is not None and self._services.learning is not None:
                await self._services.learning.used(answer.recalled)
        except StoreError as error:
            if error.reason == "record":  # another program deleted it meanwhile
                self._deleted = True
                return None
            self._services.trouble(error)
        if self._session is None:
            return None
        return Stored(self._session.id, self._session.turns, answer.said, "" if is_unread else answer.id)

    async def _keep(self, memory: Memory, turns: tuple[Turn, Turn], routed: Routed | None, again: bool) -> Session:
        changes: dict[str, Any] = {}
        if routed is not None:
            changes["state"] = {"agent": routed.agent.id}
        known = self._session or await memory.sessions.start(title_of(turns[0].content))
        kept = await memory.sessions.add_turns(known.id, *turns, replaces=known.turns if again else None, **changes)
        expected = known.turns + (0 if again else 2)
        # Turns of another tab came in between: as long as `known` is what this one knows, _follow finds them.
        self._session = kept if kept.turns == expected else known
        return self._session


def _is_unread(answer: Turn) -> bool:
    """Whether the model has no part in it: it confirms what a message asked to remember, or says why that cannot be."""
    return "taught" in answer.details


def _retry_sampling(agent: Agent | None) -> SamplingParams:
    usual = agent.sampling if agent else CHAT_SAMPLING
    return replace(usual, temperature=max(usual.temperature, RETRY_TEMPERATURE), seed=secrets.randbits(32))
