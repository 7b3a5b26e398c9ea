"""A conversation that is stored: each message is answered by the first of its answerers that can, and kept.

conversation = Conversation(assistant, runtime)    # works without a memory or a router, too
async for event in conversation.respond("why does my page crash"):   # Route, Delta ..., Done, Stored
    ...

The memory is shared with other tabs and programs. What they delete leaves the model's context at once; what they add to
this conversation is taken over before the next answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.answer import Answer
from app.chat.answer_keeper import AnswerKeeper
from app.chat.answerers import OfferTools, answerers, no_tools
from app.chat.chat_question import ChatQuestion, another_answer, new_message, rest_of_answer
from app.chat.conversation_routes import ConversationRoutes
from app.chat.conversation_tree import ConversationTree
from app.chat.titles import TitleMaker
from app.chat.trajectory_recorder import TrajectoryRecorder
from app.chat.turn_messages import agent_of, messages_of
from app.generation.answer_settings import answer_settings
from app.generation.assistant import Assistant
from app.generation.stop_token import StopToken
from app.lessons.chat_lessons import paused
from app.lessons.match import LessonMatch
from app.lessons.talk import OFFERS, offered
from app.protocol import Changed, Done, Event, Fact, Offer, Stored
from app.records.branches import Branches, Turn
from app.records.lessons import KIND as LESSON
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.sessions import KIND as SESSION
from app.records.sessions import Place, Session
from py_core.store.errors import StoreError
from py_core.store.rows import EVERYTHING, Change

if TYPE_CHECKING:
    from app.runtime import Runtime


class Conversation:
    """A conversation; an assistant has one at a time. Reports failures of memory and router to the runtime."""

    def __init__(self, assistant: Assistant, runtime: Runtime, tools: OfferTools = no_tools) -> None:
        """tools: that its answers may call."""
        self.assistant = assistant
        self._tree = ConversationTree()
        self._routes = ConversationRoutes(runtime, self._tree)
        self._keeper = AnswerKeeper(assistant, runtime, self._tree)
        self._answerers = answerers(runtime, assistant, self._tree, self._routes, self.leave_out, tools)
        self._runtime = runtime
        self._titles = TitleMaker(assistant.model, runtime)
        self._stop = StopToken()  # of the running answer, or the last one
        self._answering = False
        self._deleted = False
        self._lessons_forgotten = False
        self._given: LessonMatch | None = None  # by the running answer
        self._unlisten = runtime.listen(self._on_change)

    @property
    def turns(self) -> list[Turn]:
        """Return the shown turns of the conversation, as far as this tab knows it."""
        return self._tree.branches.path()

    @property
    def session_id(self) -> str | None:
        """Return the id of the stored conversation; None until something of it is stored."""
        return self._tree.session.id if self._tree.session else None

    def choose_agent(self, chosen: str | None) -> None:
        """Choose who answers in a conversation that is not stored yet (app/routing/agent_choice.py). None: no
        choice."""
        self._tree.choose(chosen)

    def respond(
        self, text: str, *, after: Place = "leaf", agent: str | None = None, table: str | None = None,
        stop: StopToken | None = None,
    ) -> AsyncIterator[Event]:  # fmt: skip
        """Answer a message. It is stored with the answer after Done.

        after: the number of the turn that it follows, for example because an earlier message was edited; None: it
        begins the conversation. agent: the id of the agent that answers, if the message is not routed. table: the id of
        an attached table, for whose analysis the model writes Python. stop: ends the answer, as `stop` does. Raises
        StoreError("record") if there is no such turn or table, AgentError if there is no such agent, and what
        Assistant.respond raises.
        """
        stop = self._stop = stop or StopToken()
        return self._answer(
            lambda: new_message(self._tree.branches, self._routes.agents, text, after, agent, table), stop
        )

    def retry(
        self, question: int | None = None, *, agent: str | None = None, stop: StopToken | None = None
    ) -> AsyncIterator[Event]:
        """Give another answer to a message, the last one or the one with this number. It is a variant, by the same
        agent (the agent that the user corrected the route to, if there was a correction) or by this one. Raises
        CannotAnswerError if nothing was said, and what `respond` raises."""
        stop = self._stop = stop or StopToken()
        return self._answer(lambda: another_answer(self._tree.branches, self._routes.agents, question, agent), stop)

    def continue_answer(self, *, stop: StopToken | None = None) -> AsyncIterator[Event]:
        """Continue the last answer, which was stopped, cut off, failed, or looped. The Deltas are the new text, Done
        has all of the text, and the stored turn becomes the longer one. Raises CannotAnswerError if there is no such
        answer, and what Assistant.go_on raises."""
        stop = self._stop = stop or StopToken()
        return self._answer(lambda: rest_of_answer(self._tree.branches, self._routes.agents), stop)

    async def _answer(self, ask: Callable[[], ChatQuestion], stop: StopToken) -> AsyncIterator[Event]:
        with self._runtime.answering():
            self._answering = True
            self._titles.stop()
            try:
                if (change := await self._follow()) is not None:
                    yield change
                question = replace(ask(), stop=stop)
                answer = await self._found(question)
                for told in answer.told:
                    yield told
                if stop.is_stopped and answer.by == "model":
                    yield Done("stopped")
                    return
                async with aclosing(self._say(answer, question)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
            finally:
                self._ended()

    async def _found(self, question: ChatQuestion) -> Answer:
        """Return the answer of the first answerer that has an answer."""
        for answerer in self._answerers:
            if (answer := await answerer.answer(question)) is not None:
                return answer
        raise AssertionError("The model answers every question.")

    async def _say(self, answer: Answer, question: ChatQuestion) -> AsyncIterator[Event]:
        """Say the answer and store it."""
        self._given = answer.match
        if (memory := self._runtime.memory_if_open) is not None:
            self.assistant.use_settings(answer_settings(memory.policies))
        try:
            with paused(self._runtime):
                async with aclosing(answer.events(self.assistant)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
        finally:
            stored = await self._remember(answer, question)
        if stored is not None:
            yield stored
        if answer.by == "model":
            self._read_no_loop()
        if answer.failure is not None:
            raise answer.failure
        is_own = answer.by == "model" and answer.match is None and answer.table is None
        if is_own and not question.again and (offer := await self._offered(question.text)) is not None:
            yield offer

    def _read_no_loop(self) -> None:
        """Take an answer that loops, or repeats an earlier one, out of the model's context."""
        turns = self.turns
        messages = messages_of(turns, self._routes.agents)
        if turns and (not messages or messages[-1]["content"] != turns[-1].content):
            self.assistant.go_to(messages)

    async def leave_out(self, lessons: Sequence[Lesson]) -> None:
        """Stop the model from reading what forgotten lessons said in the conversation."""
        with self._told_trouble():
            await self._tree.leave_out(self._runtime.memory_if_open, lessons)
        if not self._answering:  # else the next message finds that something was forgotten
            self.assistant.go_to(messages_of(self.turns, self._routes.agents))

    def _ended(self) -> None:
        self._answering, self._given = False, None
        if self._deleted:
            self.reset()
        elif (id := self.session_id) is not None:
            self.assistant.shelf = self._runtime.pages.shelf(id)
            self._runtime.pages.run(id, self.assistant.keep_pages())

    @contextmanager
    def _told_trouble(self) -> Iterator[None]:
        """Report a failure of the memory; the answer stays on the page."""
        try:
            yield
        except StoreError as error:
            if error.reason == "record":  # another program deleted it meanwhile
                self._deleted = True
            else:
                self._runtime.trouble(error)

    @property
    def recorder(self) -> TrajectoryRecorder:
        """Return the recorder of its answers."""
        return self._keeper.recorder

    def stop(self) -> None:
        """End the running answer, even if it has not begun yet."""
        self._stop.stop()

    def close(self) -> None:
        """Give back what the model keeps of the conversation. No more answers follow."""
        self._unlisten()
        self.assistant.close()

    def reset(self) -> None:
        """Start a new conversation; the old one stays in the memory."""
        self.assistant.reset()
        self.assistant.shelf = None
        self._tree.forget()
        self._routes.resume(None)
        self._deleted = False

    async def resume(self, session_id: str) -> Branches:
        """Continue a stored conversation. Raises StoreError if there is none."""
        memory = self._runtime.memory_if_open
        session = await memory.sessions.get(session_id) if memory else None
        if memory is None or session is None:
            if memory is not None and memory.is_locked:
                raise StoreError("locked")
            raise StoreError("record", "chat.deleted", "This conversation was deleted.")
        if self._tree.session is not None and self._tree.session.id == session_id:
            await self._follow()  # keeps what the model has read
        else:
            self.reset()
            await self._take(session, memory)
            self._runtime.pages.run(session_id, self.assistant.bring_back())
        return await memory.sessions.branches(session_id)

    # ---- changes that others make to the stored conversation ----

    def _on_change(self, change: Change) -> None:
        """Take deleted turns out of the context at once. A running answer ends first, and is not stored. An answer that
        a lesson gives ends if that lesson is deleted."""
        if self._given is not None and (LESSON, self._given.lesson.id) in change.deletes:
            self.stop()
        if change.cleared == LESSON or any(kind == LESSON for kind, _ in change.deletes):
            self._lessons_forgotten = True
        key = (SESSION, self._tree.session.id) if self._tree.session else None
        if key in change.deletes or (change.cleared in (EVERYTHING, SESSION) and key not in change.puts):
            if self._answering:
                self._deleted = True
                self.stop()
            else:
                self.reset()

    async def _follow(self) -> Changed | None:
        """Load what others stored in this conversation. Returns None if there is nothing new."""
        memory = self._runtime.memory_if_open
        if memory is None:
            return None
        try:
            session = await self._tree.follow(memory)
            if session is None:
                if self._lessons_forgotten:
                    self._lessons_forgotten = False
                    await self._tree.leave_out_forgotten(memory)
                    self.assistant.go_to(messages_of(self.turns, self._routes.agents))
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
        await self._tree.take(session, memory)
        turns = self.turns
        self.assistant.shelf = self._runtime.pages.shelf(session.id)
        self.assistant.go_to(messages_of(turns, self._routes.agents))
        last = agent_of(turns[-1], self._routes.agents) if turns else None
        agent = last.id if last else session.state.get("agent")
        self._routes.resume(agent if isinstance(agent, str) else None)

    # ---- a turn ----

    async def _offered(self, text: str) -> Offer | None:
        """Return what the message told in passing, unless the person wants no such offers in this conversation."""
        if self._tree.session is not None and self._tree.session.state.get(OFFERS) is False:
            return None
        with self._told_trouble():
            told = await offered(self._runtime, text)
            facts = tuple(Fact(one.question, one.answer) for one in told)
            return Offer(self.session_id, facts) if facts else None
        return None

    async def _remember(self, answer: Answer, question: ChatQuestion) -> Stored | None:
        if not answer.text.strip() or self._deleted:
            return None
        with self._told_trouble():
            route = self._routes.last_of(answer.text)
            stored = await self._keeper.keep(answer, question, route, lambda: self._deleted)
            if not question.rest:
                self._titles.begin(self._tree.session, self.turns)
            return stored
        return None
