"""Retired records, in which older versions kept what they learned about trainings, are deleted and not imported."""

from __future__ import annotations

import pytest

from app.records.kinds import KINDS
from app.records.memory import Memory
from py_core.store.records import Record
from py_core.store.store import Store
from py_core.store.transfer import Imported, export, import_file
from py_core.store.volatile import VolatileRows

pytestmark = pytest.mark.asyncio
HEAD = {
    "base": "0" * 32, "verdict": "accepted", "why": "", "learned": {"user-1": "planner"}, "weight": 1.0,
    "figures": {"held": 4.0}, "seconds": 1.5, "data": "bnVtYmVycw==",
}  # fmt: skip


def policy(name: str) -> Record:
    body = {"value": 0.5, "confidence": 1.0, "source": "background", "last_used": 1.0, "observations": 1}
    return Record("policy", name, {**body, "changed": 1.0})


async def test_a_memory_and_an_export_with_retired_data_keep_everything_else() -> None:
    rows = VolatileRows()
    old = await Store.open(rows)
    kept = [policy("learning.background"), policy("learning.background.last"), policy("learning.deep.last")]
    trained = [Record("head", id, {**HEAD, "data": data}) for id, data in (("one", HEAD["data"]), ("two", ""))]
    noted = [policy("learning.background.router"), policy("learning.router.last"), policy("learning.depths")]
    liked = {"base_sha256": "0" * 64, "verdict": "accepted", "why": "It helps.", "weights": "1 bnVt"}
    styled = [
        Record("style", "0" * 16, liked),
        *map(policy, ("learning.style", "learning.style.runs", "learning.style.last")),
    ]
    factors = ("divergence", "elastic", "rate", "rehearsal", "rounds")
    tuned = [policy(f"learning.background.{name}/{'0' * 16}") for name in factors]
    await old.put_many([*kept, *trained, *noted, *tuned, *styled])
    exported = await export(old)

    memory = await Memory.open(await Store.open(rows, kinds=KINDS))
    assert [record.id async for record in memory.store.scan()] == [record.id for record in kept]
    assert [one.name for one in memory.policies.all()] == [record.id for record in reversed(kept)]
    revision = await memory.store.revision()
    await Memory.open(memory.store)
    assert await memory.store.revision() == revision  # nothing remains to delete

    other = await Store.open(VolatileRows(), kinds=KINDS)
    assert await import_file(other, exported, "merge") == Imported(3, 0)
    assert (await other.count(), memory.store.unreadable, other.unreadable) == (3, set(), set())
