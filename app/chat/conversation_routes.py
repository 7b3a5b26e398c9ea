"""Finds the agent that answers a message of a conversation: the agent that the message asks for, the one chosen for the
chat, or the one that the router finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chat.chat_question import ChatQuestion
from app.chat.conversation_tree import ConversationTree
from app.chat.turn_events import route_event
from app.chat.turn_messages import agent_of
from app.protocol import Route
from app.routing.agent_choice import UNROUTED, agent_choice
from app.routing.service import Routed
from py_core.routing.agents import Agent
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime


@dataclass(frozen=True)
class QuestionRoute:
    """agent: answers, None for the plain assistant. routed: None if the message was not routed now. told: what is shown
    of it."""

    agent: Agent | None
    routed: Routed | None = None
    told: tuple[Route, ...] = ()


class ConversationRoutes:
    """The routes of one conversation. Failures of router and memory are reported to the runtime: then nothing is
    routed."""

    def __init__(self, runtime: Runtime, tree: ConversationTree) -> None:
        self._runtime, self._tree = runtime, tree
        self._found: tuple[ChatQuestion, QuestionRoute] | None = None
        self._last: Routed | None = None
        self._resumed_agent: str | None = None

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self._runtime.routing.agents if self._runtime.routing else {}

    def resume(self, agent: str | None) -> None:
        """Begin with nothing routed. agent: the id of the agent that answered last."""
        self._found = self._last = None
        self._resumed_agent = agent

    def last_of(self, text: str) -> Routed | None:
        """Return the last route, if it belongs to this message."""
        return self._last if self._last is not None and self._last.text == text else None

    async def of(self, question: ChatQuestion) -> QuestionRoute:
        """Return the route of a question. It is found once, however many answerers ask."""
        if self._found is None or self._found[0] is not question:
            self._found = question, await self._find(question)
        return self._found[1]

    async def _find(self, question: ChatQuestion) -> QuestionRoute:
        if question.rest:
            return QuestionRoute(question.agent)
        if question.agent is not None or not question.again:
            routed = await self._route(question)
            return QuestionRoute(question.agent or (routed.agent if routed else None), routed, _told(routed))
        if (routed := await self._corrected(question)) is not None:
            return QuestionRoute(routed.agent, routed, _told(routed))
        return QuestionRoute(agent_of(question.replaced, self.agents), None, _told(self.last_of(question.text)))

    async def _route(self, question: ChatQuestion) -> Routed | None:
        routing, text = self._runtime.routing, question.text
        if routing is None or not text.strip():
            return None
        try:
            await routing.refresh()  # the chat's agent may have been removed
            choice = agent_choice(self._runtime, self._tree.chosen)
            if question.agent is None and choice.agent:
                agent = routing.agents[choice.agent]
                self._last = await routing.unrouted(text, agent, "chat" if choice.is_own else "off")
            else:
                before = self._resumed_agent if self._last is None else routing.agent_of(self._last)
                self._last = await routing.route(text, before, question.agent)
            return self._last
        except (EmbedderError, StoreError) as error:
            self._runtime.trouble(error)
            return None

    async def _corrected(self, question: ChatQuestion) -> Routed | None:
        """Return the route of another answer, if the user corrected the route of the answer that it replaces."""
        routing, details = self._runtime.routing, question.replaced.details if question.replaced else {}
        route = details.get("route")
        if routing is None or details.get("lesson") or not route or route.get("reason") in UNROUTED:
            return None
        try:
            agent = await routing.corrected(question.text)
            if agent is None or agent.id == details.get("agent"):
                return None
            self._last = await routing.route(question.text, None, agent, "correction")
            return self._last
        except (EmbedderError, StoreError) as error:
            self._runtime.trouble(error)
            return None


def _told(routed: Routed | None) -> tuple[Route, ...]:
    return (route_event(routed),) if routed is not None else ()
