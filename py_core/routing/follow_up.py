"""Decides whether a message is a follow-up for the conversation's agent: it is short, and clearly means no other agent.

"Now make day 2 rainy." names no agent by itself. The limits are measured on half of
app/bench/routing_data/follow_ups.toml; `sonata bench routing` prints their effect on both halves. A limit of confidence
is the middle between the surest follow-up that seems to mean another agent and the least sure change of topic.
"""

from __future__ import annotations

MOST_WORDS = 8
MOST_CHARACTERS = 100
"""A limit for languages that write without spaces."""
CLEAR = 0.55
"""From this confidence on, another agent is clearly meant."""
FEW_WORDS = 4
CLEAR_IN_FEW_WORDS = 0.95
"""Messages of up to FEW_WORDS need more confidence: they resemble an agent's requests by chance ("in what order": the
planner, 90%)."""


def is_follow_up(text: str, confidence: float) -> bool:
    """confidence: of the best agent, 0 to 1, for the message alone."""
    words = len(text.split())
    if words > MOST_WORDS or len(text) > MOST_CHARACTERS:
        return False
    return confidence < (CLEAR_IN_FEW_WORDS if words <= FEW_WORDS else CLEAR)
