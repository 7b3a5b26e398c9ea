"""Conversations are found by the meaning of their messages, on every backend, without reading all messages again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.records.conversation_vectors import ConversationVectors
from app.records.memory import Memory
from app.records.sessions import TURN, Turn
from py_core.store.records import Record
from py_core.store.rows import Row
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY, Place

DIMENSIONS = 32


def vector(seed: int, dimensions: int = DIMENSIONS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32) * (seed + 1)


async def started(store: Store, count: int = 3) -> tuple[Memory, list[str]]:
    """Conversations of two messages; the vectors of conversation n are vector(2 n) and vector(2 n + 1)."""
    memory, ids = await Memory.open(store), list[str]()
    for number in range(count):
        session = await memory.sessions.start(f"Chat {number}")
        await memory.sessions.add_turns(session.id, Turn("user", "Question."), Turn("assistant", "Answer."))
        ids.append(session.id)
        await give_vectors(store, session.id, 2 * number)
    return memory, ids


async def give_vectors(store: Store, id: str, seed: int, dimensions: int = DIMENSIONS) -> None:
    """As app/chat/turn_indexer.py does: the conversation's own record stays."""
    turns = await store.starting_with(TURN, f"{id}/")
    await store.put_many(replace(turn, vector=vector(seed + n, dimensions)) for n, turn in enumerate(turns))


async def found(memory: Memory, seed: int, most: int = 1, least: float = 0.5) -> list[str]:
    return [record.id for record, _ in await memory.vectors.search(vector(seed), most, least)]


def reads_of_turns(store: Store) -> list[str]:
    """Fills as messages are read."""
    read = list[str]()
    rows: Any = store._rows
    for name in ("scan", "get", "query"):
        whole = getattr(rows, name)

        async def noted(*given: Any, whole: Any = whole) -> list[Row]:
            rows = await whole(*given)
            read.extend(row.id for row in rows if row.kind == TURN)
            return rows

        setattr(rows, name, noted)
    return read


async def test_the_most_similar_message_of_each_conversation_is_found_with_its_exact_cosine(store: Store) -> None:
    memory, ids = await started(store, 12)
    query = vector(1000)
    whole = await memory.vectors.search(query, 12, -1.0)
    every = [record async for record in store.scan(TURN)]
    cosines = {
        record.id: float(record.vector @ query / np.linalg.norm(record.vector) / np.linalg.norm(query))
        for record in every
        if record.vector is not None
    }
    best = {id: max((f"{id}/000000", f"{id}/000001"), key=lambda turn: cosines[turn]) for id in ids}
    expected = sorted(best.values(), key=lambda turn: -cosines[turn])
    assert [record.id for record, _ in whole] == expected
    assert [cosine for _, cosine in whole] == pytest.approx([cosines[turn] for turn in expected], abs=1e-6)
    assert [record.id for record, _ in await memory.vectors.search(query, 5, -1.0)] == expected[:5]
    least = cosines[expected[3]] - 1e-6
    assert [record.id for record, _ in await memory.vectors.search(query, 12, least)] == expected[:4]
    assert await memory.vectors.search(np.zeros(DIMENSIONS, np.float32), 5, -1.0) == []


async def test_a_search_by_meaning_follows_what_changes(store: Store) -> None:
    memory, ids = await started(store)
    assert await found(memory, 2) == [f"{ids[1]}/000000"]
    assert await found(memory, 90) == []
    await memory.sessions.add_turns(ids[0], Turn("user", "Another."), Turn("user", " "))
    assert list(await memory.vectors.bare()) == [f"{ids[0]}/000002"]  # the last one has no messages
    (turn,) = await store.get_many([(TURN, f"{ids[0]}/000002")])
    await store.put(replace(turn, vector=vector(90)))
    assert await memory.vectors.bare() == {}
    assert await found(memory, 90) == [f"{ids[0]}/000002"]
    await memory.sessions.delete(ids[0])
    assert await found(memory, 90) == []
    await store.delete(TURN, f"{ids[1]}/000000")
    assert await found(memory, 2) == []
    await store.clear()
    assert await found(memory, 4) == []


async def test_a_search_after_a_restart_reads_only_the_messages_that_it_finds(lasting: Place) -> None:
    memory, ids = await started(await lasting.open())
    await found(memory, 2)
    await memory.background.settled()
    again = await Memory.open(await lasting.open())
    read = reads_of_turns(again.store)
    assert await found(again, 2) == [f"{ids[1]}/000000"]
    assert read == [f"{ids[1]}/000000"]
    await again.sessions.edit(ids[2], title="Another")
    assert await found(again, 2) == [f"{ids[1]}/000000"]
    assert f"{ids[2]}/000000" in read  # of the changed ones


async def test_vectors_that_came_after_their_conversation_was_kept_are_found_after_a_restart(lasting: Place) -> None:
    memory, ids = await started(await lasting.open(), 1)
    await memory.sessions.add_turns(ids[0], Turn("user", "Another."))
    await found(memory, 0)
    await memory.background.settled()
    store = await lasting.open()
    (turn,) = await store.get_many([(TURN, f"{ids[0]}/000002")])
    await store.put(replace(turn, vector=vector(90)))
    again = await Memory.open(await lasting.open())
    assert await found(again, 90) == [f"{ids[0]}/000002"]
    assert await again.vectors.bare() == {}


async def test_the_vectors_of_a_conversation_that_was_left_are_kept_before_anybody_searches(store: Store) -> None:
    memory, ids = await started(store)
    await memory.background.settled()
    kept = [await store.get_blob(f"session:{id}/vectors") for id in ids]
    assert [data is None for data in kept] == [False, False, True]  # the last one may continue
    assert len(kept[0] or b"") < 3 * DIMENSIONS + 100  # a byte a number
    await memory.sessions.delete(ids[0])
    assert await store.get_blob(f"session:{ids[0]}/vectors") is None


@pytest.mark.parametrize("bytes_", [b"", b"{}", b'[1,["000000"],[],32]\n', b"[1,[],[],0]\n" + b"\1" * 9, b"\xff\n"])
async def test_what_is_kept_but_damaged_is_made_again(store: Store, bytes_: bytes) -> None:
    memory, ids = await started(store)
    for id in ids:
        record = await store.get("session", id)
        assert record is not None
        await store.put_blob(f"session:{id}/vectors", bytes_.replace(b"[1,", b"[%d," % record.version))
    again = Memory(store, memory.writer, memory.policies, lambda: None)
    assert await found(again, 2) == [f"{ids[1]}/000000"]


async def test_vectors_of_another_embedder_are_forgotten(store: Store) -> None:
    memory, ids = await started(store)
    await found(memory, 2)
    await memory.background.settled()
    await memory.drop_vectors(TURN)
    assert await store.get_blob(f"session:{ids[0]}/vectors") is None
    assert await found(memory, 2) == []
    assert len(await memory.vectors.bare()) == 6
    await give_vectors(store, ids[1], 2, dimensions=DIMENSIONS * 2)
    assert await found(memory, 2) == []  # of different length
    two = vector(2, DIMENSIONS * 2)
    assert [record.id for record, _ in await memory.vectors.search(two, 1, 0.5)] == [f"{ids[1]}/000000"]


async def test_many_conversations_without_kept_vectors_are_read_in_one_scan() -> None:
    store = await Store.open(VolatileRows(), kinds=ANY_BODY)
    memory, ids = await started(store, 60)
    again = Memory(store, memory.writer, memory.policies, lambda: None)
    await again.vectors._delete_kept(ids)
    for number in (0, 31, 59):
        assert await found(again, 2 * number + 1) == [f"{ids[number]}/000001"]
    lone = Record(TURN, "nobody/000000", {"session": "nobody", "role": "user", "content": "?"}, vector(3))
    await store.put(lone)  # without a conversation
    third = ConversationVectors(store, again.conversations, again.background)
    assert [record.id for record, _ in await third.search(vector(3), 1, 0.5)] == [f"{ids[1]}/000001"]
