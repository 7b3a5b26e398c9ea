"""Conversations as the page gets them: plain data. Times are seconds since 1970."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from app.protocol import StoredTurn
from app.stage import State
from py_core.messages import Words


class Snippet(TypedDict):
    """A message that a search found. parts: pieces of its text, each with True if it is a match."""

    role: str
    parts: list[tuple[str, bool]]


class StoredConversation(TypedDict):
    """turns: of all branches. titled: by whom, "" if the title is the first words. said: when the last turn came. kept:
    it is there when the page starts again. snippet, similarity: with a search, the message that was found and how
    similar it is."""

    id: str
    title: str
    turns: int
    pinned: bool
    archived: bool
    titled: Literal["", "model", "user"]
    said: float
    created: float
    updated: float
    kept: bool
    snippet: NotRequired[Snippet | None]
    similarity: NotRequired[float]


class ConversationPage(TypedDict):
    """total: the number of all conversations that were found."""

    total: int
    items: list[StoredConversation]


class ShownConversation(TypedDict):
    """turns: the turns that are shown, see `choose`. kept: as in StoredConversation."""

    id: str
    title: str
    turns: list[StoredTurn]
    kept: bool


class AgentName(TypedDict):
    """An agent, and its name."""

    id: str
    title: Words


class ChatAgent(TypedDict):
    """agent: the id of the agent that answers in a chat, "" if each message is routed. chosen: by the user, for the
    chat. isLost: that agent does not exist any more. agents: all, none if the routing is not ready."""

    agent: str
    chosen: str | None
    isLost: bool
    agents: list[AgentName]
    routing: State
