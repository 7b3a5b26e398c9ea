"""Whether a message goes on with what the conversation's agent does: it is short, and no other agent is clearly meant.

"Now make day 2 rainy." names no agent by itself. The limits are measured on half of
app/bench/routing_data/follow_ups.toml, and `sonata bench routing` prints what they do to both halves. A limit of
confidence is the middle between the surest follow-up that seems to mean another agent and the least sure change of
topic.
"""

from __future__ import annotations

MOST_WORDS = 8
MOST_CHARACTERS = 100
"""For languages that write without spaces."""
CLEAR = 0.55
"""From this confidence on another agent is clearly meant."""
FEW_WORDS = 4
CLEAR_IN_FEW_WORDS = 0.95
"""FEW_WORDS need more confidence: they sound like some agent by chance ("in what order": the planner, 90%)."""


def is_follow_up(text: str, confidence: float) -> bool:
    """confidence: that of the best agent, 0 to 1, for the message alone."""
    words = len(text.split())
    if words > MOST_WORDS or len(text) > MOST_CHARACTERS:
        return False
    return confidence < (CLEAR_IN_FEW_WORDS if words <= FEW_WORDS else CLEAR)
