"""Who answers in a chat: for each message the agent that suits it, always the plain assistant, or one agent.

The user chooses it for each chat (`chosen`: an agent's id, or AUTOMATIC; kept in the conversation's state); a policy
says what holds where he did not.
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
"""The policy that switches routing, for chats without a choice of their own."""
CHOICE = "choice"
"""The entry of a conversation's state that has the user's choice; none where he did not choose."""
AUTOMATIC = ""
UNROUTED: Collection[Reason] = ("chat", "off")
"""Reasons of answers for which no agent was looked for: there is no route that could be corrected."""


@dataclass(frozen=True)
class AgentChoice:
    """agent: the id of who answers, AUTOMATIC where each message is routed. is_own: chosen for this chat. is_lost: an
    agent was chosen that is not there any more, so that it is as if nothing had been."""

    agent: str
    is_own: bool
    is_lost: bool


def agent_choice(runtime: Runtime, chosen: object) -> AgentChoice:
    """chosen: of the chat, as stored or imported; None where nothing is."""
    known = runtime.routing.agents if runtime.routing else {}
    if isinstance(chosen, str) and (chosen == AUTOMATIC or chosen in known):
        return AgentChoice(chosen, True, False)
    is_automatic = runtime.is_on(ROUTING_POLICY)
    return AgentChoice(AUTOMATIC if is_automatic else FALLBACK_ID, False, chosen is not None and bool(known))
