"""All kinds of records that the memory keeps, in the order in which they are shown."""

from __future__ import annotations

from py_core.memory import files, lessons, patterns, policies, revisions, sessions, strategies, styles, trajectories
from py_core.memory.kinds import ALL, Kind, Kinds
from py_core.memory.store import Store
from py_core.routing.embedder import DIMENSIONS

HEADS = Kind("head", retired=ALL)
"""Trainings of the router's head, by versions before 7."""
KINDS = Kinds(
    [
        lessons.LESSONS,
        sessions.SESSIONS,
        sessions.TURNS,
        files.FILES,
        files.PASSAGES,
        trajectories.TRAJECTORIES,
        patterns.PATTERNS,
        strategies.STRATEGIES,
        revisions.RUNS,
        revisions.REVISION_WEIGHTS,
        styles.STYLES,
        policies.POLICIES,
        trajectories.LOGS,
        HEADS,
    ],
    dimensions=DIMENSIONS,
)


async def counts(store: Store) -> dict[str, int]:
    """Return the number of records of every kind, in the order of KINDS. Raises StoreError."""
    return {kind.name: await store.count(kind.name) for kind in KINDS}


def counted(kind: str, number: int) -> str:
    """ "1 policy", "1,200 recorded answers" """
    return f"{number:,} {KINDS[kind].nouns[number != 1]}"
