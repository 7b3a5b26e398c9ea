"""Kinds of data that older versions wrote and nothing reads any more: deleted when a memory opens, skipped by imports.

A migration could do the same, but it would write every record again and delete all blobs.
"""

from __future__ import annotations

from py_core.memory.policies import KIND as POLICY
from py_core.memory.rows import Key
from py_core.memory.store import Store

HEAD = "head"
"""A training of the router's head."""
HEAD_POLICIES = ("learning.background.router", "learning.router.last")
TUNING_POLICIES = tuple(
    f"learning.background.{name}" for name in ("rate", "divergence", "rounds", "rehearsal", "elastic")
)
"""Numbers by which trainings changed the next ones. A policy's name goes on with a slash and the model's sha256."""


def is_retired(key: Key) -> bool:
    kind, id = key
    return kind == HEAD or (kind == POLICY and id.partition("/")[0] in (*HEAD_POLICIES, *TUNING_POLICIES))


async def delete_retired(store: Store) -> None:
    """Delete the retired data. Raises StoreError."""
    policies = await store.keys_starting_with(POLICY, "learning.")
    async with store.transaction() as transaction:
        for key in (*await store.keys_starting_with(HEAD, ""), *filter(is_retired, policies)):
            transaction.delete(*key)
