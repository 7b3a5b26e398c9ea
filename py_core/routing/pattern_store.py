"""Loads the router's learned patterns from a Store, where the memory keeps them."""

from __future__ import annotations

from py_core.memory.memory import Memory
from py_core.memory.stored_index import StoredIndex
from py_core.routing.router import Router

EMBEDDER_POLICY = "routing.embedder"
"""Names the embedder whose vectors are stored."""
INDEX_NAME = "router"
"""The name of the graph of the user's patterns (of present agents) and of his own agents' examples."""


async def load_patterns(router: Router, memory: Memory) -> StoredIndex:
    """Give the router all that is stored. Those of another embedder are embedded again, and kept.

    The index that the router searches from now on is returned; `forget` it before another router is loaded.
    """
    patterns, policies = memory.patterns, memory.policies
    stored = await patterns.all()
    if policies.get(EMBEDDER_POLICY, "") != router.embedder.fingerprint:
        vectors = await router.embedder.embed([pattern.text for pattern in stored])
        for pattern, vector in zip(stored, vectors, strict=True):
            await patterns.edit(pattern.id, vector=vector)
        # named last: if this is interrupted, all are embedded again
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
