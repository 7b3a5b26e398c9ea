"""A conversation that is routed and stored: each message goes to an agent, and the turns are kept in the memory.

conversation = Conversation(assistant, runtime)    # without a memory or a router it works, too
async for event in conversation.respond("why does my page crash"):   # Route, Delta ..., Done, Stored
    ...

The memory is shared with other tabs and programs. What they delete leaves the model's context at once; what they add to
this conversation is taken over before the next answer.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from app.agent_choice import UNROUTED, agent_choice
from app.answer import Answer
from app.answer_keeper import AnswerKeeper
from app.answer_settings import answer_settings
from app.assistant import CHAT_SAMPLING, Assistant
from app.chat_lessons import paused, recall
from app.chat_question import ChatQuestion, another_answer, new_message, rest_of_answer
from app.conversation_tree import ConversationTree
from app.exact_answers import Computed, computed, computed_from_tables
from app.file_lookup import consult
from app.heard import Heard
from app.lesson_match import LessonMatch
from app.memory_talk import OFFERS, Talked, offered, talk
from app.protocol import AnswerEvent, Changed, Delta, Done, Event, Fact, Offer, Stored
from app.routing_service import Routed
from app.runtime import Runtime
from app.stop_token import StopToken
from app.titles import TitleMaker
from app.trajectory_recorder import TrajectoryRecorder
from app.turn_events import citations_event, computation_event, recall_event, route_event, taught_event
from app.turn_messages import agent_of, messages_of
from py_core.memory.branches import Branches, Turn
from py_core.memory.errors import StoreError
from py_core.memory.lessons import KIND as LESSON
from py_core.memory.lessons import Lesson
from py_core.memory.memory import Memory
from py_core.memory.rows import EVERYTHING, Change
from py_core.memory.sessions import KIND as SESSION
from py_core.memory.sessions import Place, Session
from py_core.routing.agents import Agent
from py_core.routing.embedder import EmbedderError
from py_core.sampling import SamplingParams

RETRY_TEMPERATURE = 0.7
"""The temperature of another answer to the same message: the likeliest tokens looped, so others must get a chance."""


class Conversation:
    """A conversation; an assistant has one at a time. It reports failures of memory and router to the runtime."""

    def __init__(self, assistant: Assistant, runtime: Runtime) -> None:
        self.assistant = assistant
        self._kept = ConversationTree()
        self._keeper = AnswerKeeper(assistant, runtime, self._kept)
        self._runtime = runtime
        self._titles = TitleMaker(assistant.model, runtime)
        self._stop = StopToken()  # of the running answer, or the last one
        self._answering = False
        self._deleted = False
        self._lessons_forgotten = False
        self._last: Routed | None = None
        self._recalled: LessonMatch | None = None  # the lesson that the running answer gives
        self._resumed_agent: str | None = None  # who answered last, in a resumed conversation
        self._unlisten = runtime.listen(self._on_change)

    @property
    def turns(self) -> list[Turn]:
        """What is shown of the conversation, as far as this tab knows it."""
        return self._kept.branches.path()

    @property
    def session_id(self) -> str | None:
        """Of the stored conversation; None until something of it is stored."""
        return self._kept.session.id if self._kept.session else None

    def choose_agent(self, chosen: str | None) -> None:
        """Who answers in a conversation that is not stored yet (app/agent_choice.py); None: nobody is chosen."""
        self._kept.choose(chosen)

    def respond(
        self, text: str, *, after: Place = "leaf", agent: str | None = None, stop: StopToken | None = None
    ) -> AsyncIterator[Event]:
        """Answer a message, which is stored with the answer after Done.

        after: the number of the turn that it follows, as when an earlier message was edited; None: it begins anew.
        agent: the id of the one that answers, if it is not routed. stop: ends the answer, as `stop` does.
        Raises StoreError("record") if there is no such turn, AgentError if there is no such agent, and what
        Assistant.respond raises.
        """
        stop = self._stop = stop or StopToken()
        return self._answer(
            self._respond(lambda: new_message(self._kept.branches, self._agents, text, after, agent), stop)
        )

    def retry(
        self, question: int | None = None, *, agent: str | None = None, stop: StopToken | None = None
    ) -> AsyncIterator[Event]:
        """Another answer to a message, the last one or that of this number: a variant, by the same agent (the one
        that the user corrected the route to, if he did) or by this one. Raises CannotAnswerError where nothing was
        said, and what `respond` raises."""
        stop = self._stop = stop or StopToken()
        return self._answer(
            self._respond(lambda: another_answer(self._kept.branches, self._agents, question, agent), stop)
        )

    def continue_answer(self, *, stop: StopToken | None = None) -> AsyncIterator[Event]:
        """Go on with the last answer, which was stopped, cut off, failed, or looped: the Deltas are what is new, Done
        has all of its text, and the stored turn becomes the longer one. Raises CannotAnswerError where there is none,
        and what Assistant.go_on raises."""
        stop = self._stop = stop or StopToken()
        return self._answer(self._go_on(stop))

    async def _answer(self, answering: AsyncIterator[Event]) -> AsyncIterator[Event]:
        with self._runtime.answering():
            async with aclosing(answering) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def _respond(self, what: Callable[[], ChatQuestion], stop: StopToken) -> AsyncIterator[Event]:
        self._answering = True
        self._titles.stop()
        try:
            if (change := await self._follow()) is not None:
                yield change
            asked = what()
            text, agent, sampling = asked.text, asked.agent, None
            if not asked.again and (talked := await talk(self._runtime, text)) is not None:
                async for event in self._talk(asked, talked):
                    yield event
                return
            taught = exact = None
            if not asked.again and agent is None:
                exact = computed(self._runtime, text) or await computed_from_tables(
                    self._runtime, self.session_id, text
                )
            if exact is not None:
                taught = await self._recall(text, stop)  # what was taught comes first
            if exact is not None and taught is None:
                async for event in self._compute(asked, exact):
                    yield event
                return
            routed: Routed | None = None
            if agent is not None or not asked.again:
                routed = await self._route(text, agent)
                agent = agent or (routed.agent if routed else None)
            else:
                routed = await self._corrected(asked)
                agent = routed.agent if routed else agent_of(asked.replaced, self._agents)
                if routed is None and self._last is not None and self._last.text == text:
                    yield route_event(self._last)
            if asked.again:
                sampling = _retry_sampling(agent)
            # Whoever asks for another answer than what was taught, or for an agent's, gets the model's own.
            own = asked.agent is not None or (asked.replaced is not None and asked.replaced.details.get("lesson"))
            recalled = taught or (None if own else await self._recall(text, stop))
            if routed is not None:
                yield route_event(routed)
            if recalled is not None:
                agent = None  # a lesson is given by the plain assistant, as it was learned
                yield recall_event(recalled)
            self._recalled = recalled
            if stop.is_stopped:
                yield Done("stopped")
                return
            material = None if recalled else await consult(self._runtime, self.assistant, self._kept, asked, agent)
            if material is not None:
                yield citations_event(material)
            heard = Heard()
            id = routed.id if routed else uuid.uuid4().hex
            try:
                if recalled is not None and recalled.done is not None:
                    answering = self.assistant.give(text, recalled.done, asked.before)
                else:
                    heads, given = (recalled.heads, recalled.lesson.answer) if recalled else ((), None)
                    answering = self.assistant.respond(
                        text, agent, before=asked.before, sampling=sampling, heads=heads, taught=given,
                        material=material, stop=stop,
                    )  # fmt: skip
                async with aclosing(self._hear(answering, heard)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
            finally:
                answer = Answer(id, text, routed, heard.said, heard.done, heard.failure, recalled, material=material)
                stored = await self._remember(answer, asked)
            if stored is not None:
                yield stored
            self._read_no_loop()
            if heard.failure is not None:
                raise heard.failure
            if recalled is None and not asked.again and (offer := await self._offered(text)) is not None:
                yield offer
        finally:
            self._ended()

    async def _go_on(self, stop: StopToken) -> AsyncIterator[Event]:
        self._answering = True
        self._titles.stop()
        try:
            if (change := await self._follow()) is not None:
                yield change
            asked = rest_of_answer(self._kept.branches, self._agents)
            turn, agent = asked.replaced, asked.agent
            assert turn is not None
            assert asked.before is not None
            thought = (turn.details.get("thinking") or {}).get("text", "")
            sampling = _retry_sampling(agent) if turn.details.get("reason") == "loop" else None
            heard, stored = Heard(turn.content), None
            material = await consult(self._runtime, self.assistant, self._kept, asked, agent)
            try:
                answering = self.assistant.go_on(
                    asked.text, turn.content, thought, agent,
                    before=asked.before, sampling=sampling, material=material, stop=stop,
                )  # fmt: skip
                async with aclosing(self._hear(answering, heard)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
            finally:
                if heard.is_more and not self._deleted:
                    with self._told_trouble():
                        stored = await self._keeper.keep_more(turn, heard.done, heard.said, lambda: self._deleted)
            if stored is not None:
                yield stored
            self._read_no_loop()
            if heard.failure is not None:
                raise heard.failure
        finally:
            self._ended()

    async def _hear(self, answering: AsyncIterator[AnswerEvent], heard: Heard) -> AsyncIterator[Event]:
        if (memory := self._runtime.memory) is not None:
            self.assistant.use_settings(answer_settings(memory.policies))
        with paused(self._runtime):
            async with aclosing(heard.all_of(answering, self.assistant)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    def _read_no_loop(self) -> None:
        """An answer that loops, or repeats an earlier one, leaves the model's context."""
        turns = self.turns
        messages = messages_of(turns, self._agents)
        if turns and (not messages or messages[-1]["content"] != turns[-1].content):
            self.assistant.go_to(messages)

    async def leave_out(self, lessons: Sequence[Lesson]) -> None:
        """The model no longer reads what was said in the conversation of lessons that were forgotten."""
        with self._told_trouble():
            await self._kept.leave_out(self._runtime.memory, lessons)
        if not self._answering:  # else the next message finds that something was forgotten
            self.assistant.go_to(messages_of(self.turns, self._agents))

    def _ended(self) -> None:
        self._answering, self._recalled = False, None
        if self._deleted:
            self.reset()
        elif (pages := self._runtime.pages) is not None and (id := self.session_id) is not None:
            self.assistant.shelf = pages.shelf(id)
            pages.run(id, self.assistant.keep_pages())

    @contextmanager
    def _told_trouble(self) -> Iterator[None]:
        """Tell of it when the memory fails; the answer stays on the page."""
        try:
            yield
        except StoreError as error:
            if error.reason == "record":  # another program deleted it meanwhile
                self._deleted = True
            else:
                self._runtime.trouble(error)

    @property
    def recorder(self) -> TrajectoryRecorder:
        """Of its answers."""
        return self._keeper.recorder

    def stop(self) -> None:
        """End the running answer, also before it has begun."""
        self._stop.stop()

    def close(self) -> None:
        """Give back what the model keeps of it; nobody answers in it any more."""
        self._unlisten()
        self.assistant.close()

    def reset(self) -> None:
        """Start a new conversation; the old one stays in the memory."""
        self.assistant.reset()
        self.assistant.shelf = None
        self._kept.forget()
        self._last = self._resumed_agent = None
        self._deleted = False

    async def resume(self, session_id: str) -> Branches:
        """Continue a stored conversation. Raises StoreError where there is none."""
        memory = self._runtime.memory
        session = await memory.sessions.get(session_id) if memory else None
        if memory is None or session is None:
            if self._runtime.memory_state == "locked":
                raise StoreError("locked")
            raise StoreError("record", "This conversation was deleted.")
        if self._kept.session is not None and self._kept.session.id == session_id:
            await self._follow()  # keeps what the model has read
        else:
            self.reset()
            await self._take(session, memory)
            if self._runtime.pages is not None:
                self._runtime.pages.run(session_id, self.assistant.bring_back())
        return await memory.sessions.branches(session_id)

    # ---- what others do to the stored conversation ----

    def _on_change(self, change: Change) -> None:
        """Deleted turns leave the context at once; a running answer ends first, and is not stored. An answer that gives
        a lesson ends where that is deleted."""
        if self._recalled is not None and (LESSON, self._recalled.lesson.id) in change.deletes:
            self.stop()
        if change.cleared == LESSON or any(kind == LESSON for kind, _ in change.deletes):
            self._lessons_forgotten = True
        key = (SESSION, self._kept.session.id) if self._kept.session else None
        if key in change.deletes or (change.cleared in (EVERYTHING, SESSION) and key not in change.puts):
            if self._answering:
                self._deleted = True
                self.stop()
            else:
                self.reset()

    async def _follow(self) -> Changed | None:
        """Take over what others stored in this conversation. None when there is nothing new."""
        memory = self._runtime.memory
        if memory is None:
            return None
        try:
            session = await self._kept.follow(memory)
            if session is None:
                if self._lessons_forgotten:
                    self._lessons_forgotten = False
                    await self._kept.leave_out_forgotten(memory)
                    self.assistant.go_to(messages_of(self.turns, self._agents))
                return None
            await self._take(session, memory)
            return Changed(False, tuple(self.turns))
        except StoreError as error:
            if error.reason == "record":
                self.reset()
                return Changed(True)
            self._runtime.trouble(error)
            return None

    async def _take(self, session: Session, memory: Memory) -> None:
        await self._kept.take(session, memory)
        turns = self.turns
        if self._runtime.pages is not None:
            self.assistant.shelf = self._runtime.pages.shelf(session.id)
        self.assistant.go_to(messages_of(turns, self._agents))
        last = agent_of(turns[-1], self._agents) if turns else None
        agent = last.id if last else session.state.get("agent")
        self._last, self._resumed_agent = None, agent if isinstance(agent, str) else None

    @property
    def _agents(self) -> Mapping[str, Agent]:
        return self._runtime.routing.agents if self._runtime.routing else {}

    # ---- a turn ----

    async def _route(self, text: str, chosen: Agent | None) -> Routed | None:
        """chosen: for this message alone."""
        routing = self._runtime.routing
        if routing is None or not text.strip():
            return None
        try:
            await routing.refresh()  # the chat's agent may have been removed
            choice = agent_choice(self._runtime, self._kept.chosen)
            if chosen is None and choice.agent:
                agent = routing.agents[choice.agent]
                self._last = await routing.unrouted(text, agent, "chat" if choice.is_own else "off")
            else:
                before = self._resumed_agent if self._last is None else routing.agent_of(self._last)
                self._last = await routing.route(text, before, chosen)
            return self._last
        except (EmbedderError, StoreError) as error:
            self._runtime.trouble(error)
            return None

    async def _corrected(self, asked: ChatQuestion) -> Routed | None:
        """The route of another answer, where the user has corrected that of the one that it replaces."""
        routing, details = self._runtime.routing, asked.replaced.details if asked.replaced else {}
        route = details.get("route")
        if routing is None or details.get("lesson") or not route or route.get("reason") in UNROUTED:
            return None
        try:
            agent = await routing.corrected(asked.text)
            if agent is None or agent.id == details.get("agent"):
                return None
            self._last = await routing.route(asked.text, None, agent, "correction")
            return self._last
        except (EmbedderError, StoreError) as error:
            self._runtime.trouble(error)
            return None

    async def _talk(self, asked: ChatQuestion, talked: Talked) -> AsyncIterator[Event]:
        """Say it in place of the model, which does not read this turn: a lesson that is forgotten is gone from its
        context."""
        if talked.card is not None and talked.card.kind == "forgotten":
            await self.leave_out(talked.card.originals)
        before = asked.before if asked.before is not None else messages_of(self.turns, self._agents)
        self.assistant.go_to(before)
        for learned in talked.learned:
            yield taught_event(learned)
        if talked.card is not None:
            yield talked.card
        done = Done("end", talked.words)
        yield Delta(talked.words)
        yield done
        stored = await self._remember(
            Answer(uuid.uuid4().hex, asked.text, None, talked.words, done, talked=talked), asked
        )
        if stored is not None:
            yield stored

    async def _compute(self, asked: ChatQuestion, found: Computed) -> AsyncIterator[Event]:
        yield computation_event(found)
        said = found.exact.words
        async for event in self.assistant.give(asked.text, Done("end", said), asked.before):
            yield event
        answer = Answer(uuid.uuid4().hex, asked.text, None, said, Done("end", said), computed=found)
        if (stored := await self._remember(answer, asked)) is not None:
            yield stored

    async def _recall(self, text: str, stop: StopToken) -> LessonMatch | None:
        return await recall(self._runtime, self.assistant, text, stop)

    async def _offered(self, text: str) -> Offer | None:
        """What the message told in passing, unless the person wants no such offers in this conversation."""
        if self._kept.session is not None and self._kept.session.state.get(OFFERS) is False:
            return None
        with self._told_trouble():
            told = await offered(self._runtime, text)
            facts = tuple(Fact(one.question, one.answer) for one in told)
            return Offer(self.session_id, facts) if facts else None
        return None

    async def _remember(self, answer: Answer, asked: ChatQuestion) -> Stored | None:
        if not answer.text.strip() or self._deleted:
            return None
        with self._told_trouble():
            stored = await self._keeper.keep(answer, asked, self._last, lambda: self._deleted)
            self._titles.begin(self._kept.session, self.turns)
            return stored
        return None


def _retry_sampling(agent: Agent | None) -> SamplingParams:
    usual = agent.sampling if agent else CHAT_SAMPLING
    return replace(usual, temperature=max(usual.temperature, RETRY_TEMPERATURE), seed=secrets.randbits(32))
