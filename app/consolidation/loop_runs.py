"""The runs of loops that keep no record of each run: a policy per loop, so that the page can show all runs."""

from __future__ import annotations

import json
import math
from typing import Any

from app.records.policies import Policies

RUNS_POLICY = "learning.{}.runs"
"""A JSON list of runs, the oldest first: {created, kind, count}. Times are seconds since 1970."""
MOST = 60


async def note_run(policies: Policies, loop: str, created: float, kind: str, count: int) -> None:
    """kind: the result. count: the number of answers. Raises StoreError."""
    kept = [*runs_of(policies, loop), {"created": created, "kind": kind, "count": count}][-MOST:]
    await policies.set(RUNS_POLICY.format(loop), json.dumps(kept), confidence=1.0, source=loop)


def runs_of(policies: Policies, loop: str) -> list[dict[str, Any]]:
    """Return the runs that can be read."""
    policy = policies.look(RUNS_POLICY.format(loop))
    try:
        listed = json.loads(policy.value) if policy is not None and isinstance(policy.value, str) else []
    except ValueError:
        return []
    return [one for one in listed if _is_run(one)] if isinstance(listed, list) else []


def _is_run(one: Any) -> bool:
    if not isinstance(one, dict) or one.keys() != {"created", "kind", "count"}:
        return False
    numbers = all(type(one[name]) in (int, float) and math.isfinite(one[name]) for name in ("created", "count"))
    return numbers and isinstance(one["kind"], str)
