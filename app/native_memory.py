"""The memory and the router natively: SQLite and onnxruntime."""

from __future__ import annotations

from pathlib import Path

from app.dispatch import Dispatcher
from app.memory_keeper import MemoryKeeper
from app.routing import native_parts
from py_core.memory.encryption import NativeCrypto
from py_core.memory.memory import Memory
from py_core.memory.sqlite import SQLiteRows
from py_core.routing.vector_index import HnswVectorIndex


async def open_keeper(path: Path) -> MemoryKeeper:
    """Never fails: `problem` tells what is missing, and the chat goes on without it."""
    keeper = MemoryKeeper(NativeCrypto(), make_index=HnswVectorIndex)

    async def open_dispatcher(memory: Memory) -> Dispatcher:
        parts = native_parts()
        return await Dispatcher.open(parts.embedder, parts.data, memory, parts.kernel)

    await keeper.open(lambda: SQLiteRows.open(path))
    await keeper.route_with(open_dispatcher)
    return keeper
