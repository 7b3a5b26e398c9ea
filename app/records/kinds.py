"""All kinds of records that the memory keeps, in the order in which they are shown."""

from __future__ import annotations

from app.records import files, lessons, policies, revisions, sessions
from py_core.learning import strategies, trajectories
from py_core.routing import patterns
from py_core.routing.embedder import DIMENSIONS
from py_core.store.kinds import ALL, Kind, Kinds
from py_core.store.store import Store

HEADS = Kind("head", retired=ALL)
"""Trainings of the router's head, by versions before 7."""
STYLES = Kind("style", retired=ALL)
"""How a person liked answers to sound."""
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
        policies.POLICIES,
        trajectories.LOGS,
        HEADS,
        STYLES,
    ],
    dimensions=DIMENSIONS,
)


async def counts(store: Store) -> dict[str, int]:
    """Return the number of records of every kind, in the order of KINDS. Raises StoreError."""
    return {kind.name: await store.count(kind.name) for kind in KINDS.in_use}


def counted(kind: str, number: int) -> str:
    """ "1 policy", "1,200 recorded answers" """
    return f"{number:,} {KINDS[kind].noun(number)}"
