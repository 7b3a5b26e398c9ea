"""The answerers of a message, in order: the first that has an answer gives it.

A new way of answering is a class with the method `answer`, and a line in `answerers`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from app.chat.answer import Answer
from app.chat.chat_question import ChatQuestion
from app.chat.conversation_routes import ConversationRoutes
from app.chat.conversation_tree import ConversationTree
from app.chat.exact_answers import exact_answer, exact_answer_of_tables
from app.chat.file_lookup import consult
from app.chat.turn_events import citations_event, computation_event, taught_event
from app.chat.turn_messages import messages_of
from app.files.material import Material
from app.generation.assistant import CHAT_SAMPLING, Assistant
from app.lessons.chat_lessons import recall
from app.lessons.match import recall_event
from app.lessons.talk import talk
from app.protocol import AnswerEvent, Delta, Done, Event
from app.records.lessons import Lesson
from py_core.routing.agents import Agent
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.generation.tool_loop import ToolUse
    from app.runtime import Runtime

RETRY_TEMPERATURE = 0.7
"""The temperature of another answer to the same message. The likeliest tokens looped, so others must get a chance."""

LeaveOut = Callable[[Sequence[Lesson]], Awaitable[None]]
"""Takes what lessons say out of the part of the conversation that the model reads."""


OfferTools = Callable[[str | None], "Awaitable[ToolUse | None]"]
"""Returns the tools that a conversation with this id (None: it is not stored yet) may call now; None if none."""


async def no_tools(session: str | None) -> None:
    """Offer no tools."""


class Answerer(Protocol):
    async def answer(self, question: ChatQuestion) -> Answer | None:
        """Return the answer, which is not said yet; None if the next answerer should be asked."""


def answerers(
    runtime: Runtime, assistant: Assistant, tree: ConversationTree, routes: ConversationRoutes, leave_out: LeaveOut,
    tools: OfferTools = no_tools,
) -> tuple[Answerer, ...]:  # fmt: skip
    """Return the answerers of a conversation. What was taught comes before what a tool computes; the model answers
    everything. tools: that it may call."""
    return (
        AnalysisAnswerer(runtime, assistant),
        TalkAnswerer(runtime, assistant, tree, routes, leave_out),
        LessonAnswerer(runtime, assistant, routes),
        ToolAnswerer(runtime, assistant, tree),
        ToolLoopAnswerer(runtime, assistant, tree, routes, tools),
        FileAnswerer(runtime, assistant, tree, routes),
        ModelAnswerer(assistant, routes),
    )


class AnalysisAnswerer:
    """The model writes Python that answers a question about an attached table, if the person asks for that."""

    def __init__(self, runtime: Runtime, assistant: Assistant) -> None:
        self._runtime, self._assistant = runtime, assistant

    async def answer(self, question: ChatQuestion) -> Answer | None:
        if question.table is None or question.rest:
            return None
        from app.files.analysis import analysis_of, is_correction  # late: few messages ask for it

        table = await self._runtime.files.table(question.table)
        if table is None:
            raise StoreError("record", "files.removed", "This file was removed.")
        analysis = analysis_of(table, question.table, question.text)
        # The likeliest code has been seen, and was wrong.
        sampling = redrawn(CHAT_SAMPLING) if question.again or is_correction(question.text) else None
        saying = self._assistant.analyse(
            question.text, analysis, before=question.before, sampling=sampling, stop=question.stop
        )
        return Answer(question.text, saying, [citations_event(analysis)], table=question.table)


class TalkAnswerer:
    """Teaches, forgets and lists what was taught, if a message asks for that. The model does not read this turn."""

    def __init__(
        self, runtime: Runtime, assistant: Assistant, tree: ConversationTree, routes: ConversationRoutes,
        leave_out: LeaveOut,
    ) -> None:  # fmt: skip
        self._runtime, self._assistant, self._tree = runtime, assistant, tree
        self._routes, self._leave_out = routes, leave_out

    async def answer(self, question: ChatQuestion) -> Answer | None:
        if question.again or (talked := await talk(self._runtime, question.text)) is None:
            return None
        told: list[Event] = [taught_event(learned) for learned in talked.learned]
        if talked.card is not None:
            told.append(talked.card)
            if talked.card.kind == "forgotten":
                await self._leave_out(talked.card.originals)
        before = question.before
        if before is None:
            before = messages_of(self._tree.branches.path(), self._routes.agents)
        self._assistant.go_to(before)
        return Answer(question.text, _spoken(Done("end", talked.words)), told, by="memory")


class LessonAnswerer:
    """Gives what was taught. If the person asks for another answer than that, for an agent's, or for a shape that it
    does not have, the model answers itself."""

    def __init__(self, runtime: Runtime, assistant: Assistant, routes: ConversationRoutes) -> None:
        self._runtime, self._assistant, self._routes = runtime, assistant, routes

    async def answer(self, question: ChatQuestion) -> Answer | None:
        was_lesson = question.replaced is not None and question.replaced.details.get("lesson")
        if question.rest or question.agent is not None or was_lesson:
            return None
        match = await recall(self._runtime, self._assistant, question.text, question.stop)
        if match is None or not await self._assistant.is_shaped(match.lesson.answer):
            return None
        route = await self._routes.of(question)
        if match.done is not None:
            saying = self._assistant.give(question.text, match.done, question.before)
        else:  # by the plain assistant, as it was learned
            saying = self._assistant.respond(
                question.text, before=question.before, heads=match.heads, taught=match.lesson.answer,
                stop=question.stop,
            )  # fmt: skip
        return Answer(question.text, saying, [*route.told, recall_event(match)], route.routed, match)


class ToolAnswerer:
    """Computes what can be computed exactly. If the person asks for another answer, for an agent's, or for a shape that
    it does not have, the model answers."""

    def __init__(self, runtime: Runtime, assistant: Assistant, tree: ConversationTree) -> None:
        self._runtime, self._assistant, self._tree = runtime, assistant, tree

    async def answer(self, question: ChatQuestion) -> Answer | None:
        if question.again or question.agent is not None:
            return None
        session = self._tree.session.id if self._tree.session else None
        exact = exact_answer(self._runtime, question.text)
        exact = exact or await exact_answer_of_tables(self._runtime, session, question.text)
        if exact is None or not await self._assistant.is_shaped(exact.words):
            return None
        saying = self._assistant.give(question.text, Done("end", exact.words), question.before)
        return Answer(question.text, saying, [computation_event(exact)], by="tool")


class ModelAnswerer:
    """The model answers, as the agent to which the message is routed."""

    def __init__(self, assistant: Assistant, routes: ConversationRoutes) -> None:
        self._assistant, self._routes = assistant, routes

    async def answer(
        self, question: ChatQuestion, material: Material | None = None, tools: ToolUse | None = None
    ) -> Answer | None:
        """material: of attached files. The model reads it with the message. tools: that it may call."""
        route = await self._routes.of(question)
        if question.rest:
            return self._rest(question, route.agent, material)
        saying = self._assistant.respond(
            question.text, route.agent, before=question.before,
            sampling=self._redrawn(route.agent) if question.again else None,
            material=material, tools=tools, stop=question.stop,
        )  # fmt: skip
        cited = () if material is None else (citations_event(material),)
        return Answer(question.text, saying, (*route.told, *cited), route.routed)

    def _rest(self, question: ChatQuestion, agent: Agent | None, material: Material | None) -> Answer:
        begun = question.replaced
        assert begun is not None
        assert question.before is not None
        saying = self._assistant.go_on(
            question.text, begun.content, (begun.details.get("thinking") or {}).get("text", ""), agent,
            before=question.before, sampling=self._redrawn(agent) if begun.details.get("reason") == "loop" else None,
            material=material, stop=question.stop,
        )  # fmt: skip
        return Answer(question.text, saying, said=begun.content)

    def _redrawn(self, agent: Agent | None) -> SamplingParams:
        """Return a way of drawing that gives another answer each time."""
        return redrawn(self._assistant.usual_sampling(agent))


class FileAnswerer(ModelAnswerer):
    """The model answers from the conversation's files, if a part of them belongs to the message."""

    def __init__(
        self, runtime: Runtime, assistant: Assistant, tree: ConversationTree, routes: ConversationRoutes
    ) -> None:
        super().__init__(assistant, routes)
        self._runtime, self._tree = runtime, tree

    async def answer(
        self, question: ChatQuestion, material: Material | None = None, tools: ToolUse | None = None
    ) -> Answer | None:
        material = await self._found(question)
        return None if material is None else await super().answer(question, material)

    async def _found(self, question: ChatQuestion) -> Material | None:
        route = await self._routes.of(question)
        if question.stop.is_stopped:
            return None
        return await consult(self._runtime, self._assistant, self._tree, question, route.agent)


class ToolLoopAnswerer(FileAnswerer):
    """The model answers, and may call tools, if the conversation has any. It reads the files that belong to the
    message, too. It goes on without them with an answer that it began, and answers of a shape call nothing."""

    def __init__(
        self, runtime: Runtime, assistant: Assistant, tree: ConversationTree, routes: ConversationRoutes,
        offered: OfferTools,
    ) -> None:  # fmt: skip
        super().__init__(runtime, assistant, tree, routes)
        self._offered = offered

    async def answer(
        self, question: ChatQuestion, material: Material | None = None, tools: ToolUse | None = None
    ) -> Answer | None:
        if question.rest or self._assistant.has_shape:
            return None
        tools = await self._offered(self._tree.session.id if self._tree.session else None)
        if tools is None:
            return None
        return await ModelAnswerer.answer(self, question, await self._found(question), tools)


def redrawn(usual: SamplingParams) -> SamplingParams:
    """Return the sampling with which an answer differs each time."""
    return replace(usual, temperature=max(usual.temperature, RETRY_TEMPERATURE), seed=secrets.randbits(32))


async def _spoken(done: Done) -> AsyncIterator[AnswerEvent]:
    yield Delta(done.text)
    yield done
