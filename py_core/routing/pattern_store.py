"""What the router learned, kept in a Store as its patterns (py_core/memory/patterns.py).

    await load_patterns(router, patterns, policies)
    await keep_pattern(await router.correct(text, agent), patterns)

Quality there is half the router's weight. The policy `routing.embedder` names the embedder whose vectors are stored.
"""

from __future__ import annotations

import time
from typing import cast

from py_core.memory.patterns import Pattern, Patterns
from py_core.memory.policies import Policies
from py_core.routing.pattern_index import LEAST_AGE, RoutingPattern, Source
from py_core.routing.router import Router

EMBEDDER_POLICY = "routing.embedder"


async def load_patterns(router: Router, patterns: Patterns, policies: Policies) -> int:
    """Give the router all that is stored; how many. Those of another embedder are embedded again, and kept."""
    stored = await patterns.all()
    if policies.get(EMBEDDER_POLICY, "") != router.embedder.fingerprint:
        vectors = await router.embedder.embed([pattern.text for pattern in stored])
        for pattern, vector in zip(stored, vectors, strict=True):
            await patterns.edit(pattern.id, vector=vector)
        # named last: if this is interrupted, all are embedded again
        await policies.set(EMBEDDER_POLICY, router.embedder.fingerprint, confidence=1.0, source="router")
        stored = await patterns.all()
    for pattern in stored:
        router.put(routing_pattern(pattern, patterns.half_life))
    return len(stored)


def routing_pattern(pattern: Pattern, half_life: float) -> RoutingPattern:
    """A stored one as the router has it. What was not used for long counts less than what was; it never goes away."""
    source = cast(Source, pattern.source if pattern.source in ("example", "agent") else "user")
    age = 1.0
    if source == "user" and pattern.quality > 0:
        age = max(pattern.weight(time.time(), half_life) / pattern.quality, LEAST_AGE)
    return RoutingPattern(pattern.id, pattern.text, pattern.agent, source, pattern.vector, 2 * pattern.quality, age)


async def keep_pattern(pattern: RoutingPattern, patterns: Patterns) -> None:
    """A correction, or what `learn` returned. One that is stored keeps its uses and dates."""
    quality = pattern.weight / 2
    kept = await patterns.edit(
        pattern.id, text=pattern.text, vector=pattern.vector, agent=pattern.agent, quality=quality
    )
    if kept is None:
        now = time.time()
        new = Pattern(pattern.id, pattern.text, pattern.vector, pattern.agent, quality, 0, pattern.source, now, now)
        await patterns.add_many([new])
