"""A process that starts others, which write until they are killed: for test_crash.py.

Reads lines "SLOT MODE FILE START" and answers with a line "pid SLOT PID". Each process then says "stored SLOT NUMBER"
whenever all records up to this number are durable. It forks instead of starting Python again and again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import numpy as np

from py_core.store.encryption import NativeCrypto
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.write_batch import BatchedWriter

PASSPHRASES = ("this one", "the other")
BODY = {"text": "x" * 200}
ANY = Kinds(others=True)


def vector(number: int) -> np.ndarray:
    return np.full(384, number, np.float32)


async def write(slot: str, path: Path, start: int) -> None:
    """Records through the batched writer, and now and then two that belong together."""
    store = await Store.open(await SQLiteRows.open(path), kinds=ANY)
    writer = BatchedWriter(store)
    number = start
    while True:
        for _ in range(20):
            writer.put(Record("measure", f"{number}", {**BODY, "number": number}, vector(number)))
            number += 1
        await writer.flush()
        os.write(1, f"stored {slot} {number - 1}\n".encode())
        async with store.transaction() as transaction:
            transaction.put(Record("pair", f"{number} left"))
            transaction.put(Record("pair", f"{number} right"))
        await asyncio.sleep(0.005)


async def rekey(path: Path) -> None:
    """Change the passphrase back and forth for ever."""
    store, now = await opened(path)
    os.write(1, b"stored - 0\n")  # from here on it is at work
    while True:
        await set_passphrase(store, PASSPHRASES[1 - now], old=PASSPHRASES[now], iterations=1)
        now = 1 - now


async def opened(path: Path) -> tuple[Store, int]:
    """The store, and the passphrase that opens it."""
    for index, passphrase in enumerate(PASSPHRASES):
        rows = await SQLiteRows.open(path)
        try:
            return await Store.open(rows, passphrase, crypto=NativeCrypto(), kinds=ANY), index
        except StoreError as error:
            await rows.close()
            if error.reason != "passphrase":
                raise
    raise StoreError("passphrase")


def main() -> None:
    for line in sys.stdin:
        slot, mode, path, start = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(write(slot, Path(path), int(start)) if mode == "write" else rekey(Path(path)))
        os.write(1, f"pid {slot} {child}\n".encode())


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed processes need no wait
    main()
