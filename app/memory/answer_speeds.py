"""The speed of answers over time, from the log: for the plots of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from py_core.learning.trajectories import Trajectory

if TYPE_CHECKING:
    from app.memory.views import SpeedGroup

MOST_GROUPS = 24
PERCENTILES = (50, 90, 99)
_LEAST_TOKENS = 4
"""The least tokens of an answer whose speed is meaningful."""


def speed_groups(entries: Sequence[Trajectory]) -> list[SpeedGroup]:
    """Return at most MOST_GROUPS groups, in their order. entries: the newest first."""
    answered = [entry for entry in reversed(entries) if entry.new_tokens > 0 and entry.error is None]
    if not answered:
        return []
    size = -(-len(answered) // MOST_GROUPS)
    return [_group(answered[at : at + size]) for at in range(0, len(answered), size)]


def _group(entries: Sequence[Trajectory]) -> SpeedGroup:
    rates = [
        1000 * entry.new_tokens / entry.stages["decode"]
        for entry in entries
        if entry.new_tokens >= _LEAST_TOKENS and entry.stages.get("decode", 0.0) > 0
    ]
    waits = np.percentile([entry.total_ms - entry.stages.get("decode", 0.0) for entry in entries], PERCENTILES)
    return {
        "created": entries[-1].created,
        "count": len(entries),
        "tokS": float(np.median(rates)) if rates else None,
        "first": {str(p): float(wait) for p, wait in zip(PERCENTILES, waits, strict=True)},
    }
