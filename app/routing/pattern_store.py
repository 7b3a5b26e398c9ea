"""Loads the router's learned patterns from the memory's Store."""

from __future__ import annotations

from app.records.memory import Memory
from py_core.routing.router import Router
from py_core.store.stored_index import StoredIndex

EMBEDDER_POLICY = "routing.embedder"
"""The key of the stored vectors' embedder."""
INDEX_NAME = "router"
"""The name of the graph with the user's patterns (of active agents) and the examples of the user's own agents."""


async def load_patterns(router: Router, memory: Memory) -> StoredIndex:
    """Give the router all stored patterns. Those of another embedder are embedded again, and stored.

    Returns the index that the router now searches; call its `forget` before another router is loaded.
    """
    patterns, policies = memory.patterns, memory.policies
    stored = await patterns.all()
    if policies.get(EMBEDDER_POLICY, "") != router.embedder.fingerprint:
        vectors = await router.embedder.embed([pattern.text for pattern in stored])
        for pattern, vector in zip(stored, vectors, strict=True):
            await patterns.edit(pattern.id, vector=vector)
        # stored last: if this is interrupted, all are embedded again
        await policies.set(EMBEDDER_POLICY, router.embedder.fingerprint, confidence=1.0, source="router")
        stored = await patterns.all()
    learned = router.learned
    learned.put_unindexed(pattern for pattern in stored if pattern.source != "example")
    for pattern in stored:
        if pattern.source == "example":
            router.put(pattern)
    dimensions = router.embedder.dimensions
    index = await StoredIndex.open(
        memory.store, INDEX_NAME, learned.voting(), dimensions, memory.background, router.kernel
    )
    learned.replace_index(index.index)
    return index
