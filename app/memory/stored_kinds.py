"""The contents of the memory in words: every kind of record, and how many there are of it."""

from __future__ import annotations

from collections.abc import Mapping

from py_core.memory import (
    files,
    lessons,
    patterns,
    policies,
    revisions,
    sessions,
    strategies,
    styles,
    trajectories,
)
from py_core.memory.store import Store

NOUNS: Mapping[str, tuple[str, str]] = {
    lessons.KIND: ("fact that you taught", "facts that you taught"),
    sessions.KIND: ("conversation", "conversations"),
    sessions.TURN: ("message", "messages"),
    files.KIND: ("file", "files"),
    files.PASSAGE: ("part of a file", "parts of files"),
    trajectories.KIND: ("recorded answer", "recorded answers"),
    patterns.KIND: ("pattern", "patterns"),
    strategies.KIND: ("strategy", "strategies"),
    revisions.KIND: ("training", "trainings"),
    revisions.WEIGHTS: ("part of a learned adapter", "parts of learned adapters"),
    styles.KIND: ("learned style", "learned styles"),
    policies.KIND: ("policy", "policies"),
}
"""Singular and plural, in the order in which they are shown."""


async def counts(store: Store) -> dict[str, int]:
    """Return the number of records of every kind, in the order of NOUNS. Raises StoreError."""
    return {kind: await store.count(kind) for kind in NOUNS}


def counted(kind: str, number: int) -> str:
    """ "1 policy", "1,200 recorded answers" """
    return f"{number:,} {NOUNS[kind][number != 1]}"
