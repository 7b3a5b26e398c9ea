"""A memory that needs a passphrase is a temporary one until it is unlocked, and remains the same object."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.records.memory import Memory
from py_core.store.encryption import NativeCrypto
from py_core.store.passphrase import set_passphrase
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.store.places import ANY_BODY


async def opened(path: Path) -> Memory:
    return await Memory.open(
        await Store.open_lockable(await SQLiteRows.open(path), crypto=NativeCrypto(), kinds=ANY_BODY)
    )


async def test_who_unlocks_it_twice_at_once_has_all_that_was_stored_before_and_meanwhile(tmp_path: Path) -> None:
    before = await opened(tmp_path / "memory.sqlite")
    await before.sessions.start("Before")
    await set_passphrase(before.store, "a long way")
    await before.close()

    memory = await opened(tmp_path / "memory.sqlite")
    sessions = memory.sessions
    assert memory.is_locked
    assert not memory.store.persistent
    await sessions.start("Meanwhile")
    await asyncio.gather(memory.unlock("a long way"), memory.unlock("a long way"))
    assert not memory.is_locked
    await sessions.start("After")
    await memory.close()

    again = await opened(tmp_path / "memory.sqlite")
    await again.unlock("a long way")
    assert {session.title for session in await again.sessions.all()} == {"Before", "Meanwhile", "After"}
    await again.close()
