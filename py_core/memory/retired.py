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


def is_retired(key: Key) -> bool:
    kind, id = key
    return kind == HEAD or (kind == POLICY and id in HEAD_POLICIES)


async def delete_retired(store: Store) -> None:
    """Delete the retired data. Raises StoreError."""
    policies = await store.get_many([(POLICY, name) for name in HEAD_POLICIES])
    async with store.transaction() as transaction:
        for key in (*await store.keys_starting_with(HEAD, ""), *(policy.key for policy in policies)):
            transaction.delete(*key)
