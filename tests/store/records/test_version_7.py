"""A memory and exports that version 7 of the records wrote, in which an answer had a log entry and a trajectory.

Their three answers: "both" has both, with a judgement; "failed" and "computed" have a log entry alone; "unlogged" has
a trajectory alone, whose log entry was deleted.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from app.records.kinds import KINDS, counts
from app.records.memory import Memory
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.rows import LAYOUT
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.transfer import import_file
from py_core.store.volatile import VolatileRows

FILES = Path(__file__).parent / "version_7"
NOW = 1_790_000_000.0
PASSPHRASES = {"memory": None, "locked": "seven sheep"}


async def opened_file(name: str, folder: Path) -> Store:
    path = folder / "memory.sqlite"
    if not path.exists():
        path.write_bytes(gzip.decompress((FILES / f"{name}.sqlite.gz").read_bytes()))
    rows = await SQLiteRows.open(path)
    return await Store.open(rows, PASSPHRASES[name], clock=lambda: NOW, kinds=Kinds(KINDS))


async def imported_file(name: str, folder: Path) -> Store:
    store = await Store.open(VolatileRows(), clock=lambda: NOW, kinds=Kinds(KINDS))
    data = (FILES / f"{name}.sonata").read_bytes()
    assert (await import_file(store, data, "merge", PASSPHRASES[name])).left_out == 0
    return store


@pytest.mark.parametrize("name", PASSPHRASES)
@pytest.mark.parametrize("opening", [opened_file, imported_file])
async def test_each_answer_has_one_record_with_all_that_was_known(name: str, opening, tmp_path: Path) -> None:
    store = await opening(name, tmp_path)
    assert await store.check() is None  # the ledger of an encrypted memory is that of the new records
    memory = await Memory.open(store)
    assert [t.id for t in await memory.log.entries()] == ["unlogged", "computed", "failed", "both"]
    assert [t.id for t in await memory.trajectories.all()] == ["unlogged", "both"]
    unlogged, computed, failed, both = await memory.log.entries()

    assert (both.asked, both.answered, both.agent, both.created) == (
        "How many sheep are on the hill?", "Seven.", "planner", NOW - 3000,
    )  # fmt: skip
    assert (both.backend, both.rating, both.error, both.total_ms) == ("wasm", 0.25, None, 54.0)
    assert (both.feedback, both.again, both.quality, both.logprob) == ("bad", True, 0.25, -0.5)
    assert both.effects == ({"kind": "pattern", "pattern": "p1", "before": 1.0, "after": 0.9},)
    assert both.route == {
        "why": "votes", "confidence": 0.75, "patterns": ["p1"], "ranked": [["planner", 0.75], ["coder", 0.25]],
        "neighbours": ["p1", "p2"], "adapter": "Shepherd",
    }  # fmt: skip
    assert both.vector is not None
    assert (failed.asked, failed.error, failed.learnable) == (
        "Tell me of the storm", "DeviceLostError: The GPU was lost.", False,
    )  # fmt: skip
    assert (computed.route, computed.reason, computed.backend) == ({"tool": "arithmetic"}, "end", "wasm")
    assert (unlogged.answered, unlogged.backend, unlogged.rating) == ("Nobody.", "", None)

    assert [t.id for t in await memory.log.poor()] == ["both"]
    assert [t.id for t, _ in await memory.log.similar_errors("the GPU was lost")] == ["failed"]
    assert store.unreadable == set()
    told = await counts(store)
    assert (told["trajectory"], told["session"], told["turn"], await store.count()) == (4, 1, 2, 7)
    await memory.close()


async def test_a_memory_that_ends_in_the_middle_of_the_change_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, applied = SQLiteRows.apply, []

    async def ends(self: SQLiteRows, batch: object) -> None:
        applied.append(batch)
        raise StoreError("closed")

    monkeypatch.setattr(SQLiteRows, "apply", ends)
    with pytest.raises(StoreError):
        await opened_file("memory", tmp_path)
    assert len(applied) == 1, "the change is one transaction"
    monkeypatch.setattr(SQLiteRows, "apply", apply)
    store = await opened_file("memory", tmp_path)
    assert await store.count("trajectory") == 4
    assert (await store._rows.meta())["schema"] == str(LAYOUT)
    await store.close()
