"""The agent that answers in a chat: for each message the one that suits it, always the plain assistant, or one agent.

The user chooses it for each chat (`chosen`: an agent's id, or AUTOMATIC; kept in the conversation's state); a policy is
the default.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_core.routing.agents import FALLBACK_ID
from py_core.routing.router import Reason

if TYPE_CHECKING:
    from app.runtime import Runtime

ROUTING_POLICY = "routing.automatic"
"""The policy that switches routing, for chats without their own choice."""
CHOICE = "choice"
"""The entry of a conversation's state that holds the user's choice; missing if there is none."""
AUTOMATIC = ""
UNROUTED: Collection[Reason] = ("chat", "off")
"""Reasons of answers for which no agent was searched: there is no route to correct."""


@dataclass(frozen=True)
class AgentChoice:
    """agent: the id of the agent that answers, AUTOMATIC if each message is routed. is_own: chosen for this chat.
    is_lost: the chosen agent no longer exists, so that the choice does not count."""

    agent: str
    is_own: bool
    is_lost: bool


def agent_choice(runtime: Runtime, chosen: object) -> AgentChoice:
    """chosen: the chat's choice, as stored or imported; None if there is none."""
    known = runtime.routing.agents if runtime.routing else {}
    if isinstance(chosen, str) and (chosen == AUTOMATIC or chosen in known):
        return AgentChoice(chosen, True, False)
    is_automatic = runtime.is_on(ROUTING_POLICY)
    return AgentChoice(AUTOMATIC if is_automatic else FALLBACK_ID, False, chosen is not None and bool(known))
