"""What the page gets of conversations, as plain data. Times are seconds since 1970."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from app.protocol import StoredTurn
from app.stage import State
from py_core.messages import Words


class Snippet(TypedDict):
    """A message that a search found. parts: of its text, and whether each is a match."""

    role: str
    parts: list[tuple[str, bool]]


class StoredConversation(TypedDict):
    """turns: of all branches. titled: by whom, "" if the title is the first words. said: when the last turn came. kept:
    whether it is there when the page starts again. snippet, similarity: of a search, the message that was found and how
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
    """total: of all that were found."""

    total: int
    items: list[StoredConversation]


class ShownConversation(TypedDict):
    """turns: those that are shown, see `choose`. kept: as of StoredConversation."""

    id: str
    title: str
    turns: list[StoredTurn]
    kept: bool


class AgentName(TypedDict):
    """An agent, and its name."""

    id: str
    title: Words


class ChatAgent(TypedDict):
    """agent: the id of who answers in a chat, "" if each message is routed. chosen: by the user, for the chat. isLost:
    that agent is not there any more. agents: all, none if the routing is not ready."""

    agent: str
    chosen: str | None
    isLost: bool
    agents: list[AgentName]
    routing: State
