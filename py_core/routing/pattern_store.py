"""What the router learned is kept in a Store, as the memory's patterns: from there it is loaded."""

from __future__ import annotations

from py_core.memory.patterns import Patterns
from py_core.memory.policies import Policies
from py_core.routing.router import Router

EMBEDDER_POLICY = "routing.embedder"
"""Names the embedder whose vectors are stored."""


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
        router.put(pattern)
    return len(stored)
