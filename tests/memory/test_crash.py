"""kill -9 at random moments: nothing older than a second is missing, and nothing is half there."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from crash_writer import BODY, PASSPHRASES, opened, vector
from leftovers import Secrets

from py_core.memory.encryption import NativeCrypto
from py_core.memory.passphrase import set_passphrase
from py_core.memory.records import Record
from py_core.memory.sqlite import SQLiteRows
from py_core.memory.store import Store

ROOT = Path(__file__).parents[2]
AT_ONCE = 5


class Writers:
    """Processes of crash_writer.py, and what they said."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("crash_writer.py"))]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pids: dict[str, int] = {}
        self.puts: dict[str, dict[int, float]] = {}
        self._said = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, slot, *rest = line.split()
            with self._said:
                if what == "pid":
                    self.pids[slot] = int(rest[0])
                else:
                    self.puts.setdefault(slot, {})[int(rest[0])] = float(rest[1])
                self._said.notify_all()

    def start(self, slot: str, mode: str, path: Path, start: int = 0) -> int:
        """Returns the process, once it is at work."""
        self.pids.pop(slot, None)
        self.puts.clear() if mode == "rekey" else self.puts.pop(slot, None)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{slot} {mode} {path} {start}\n")
        self._process.stdin.flush()
        with self._said:
            assert self._said.wait_for(lambda: slot in self.pids and (mode == "write" or "-" in self.puts), 30)
        return self.pids[slot]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def writers() -> Iterator[Writers]:
    made = Writers()
    yield made
    made.close()


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def numbers_in(path: Path) -> set[int]:
    """Of all records, each of which is whole."""
    store = await Store.open(await SQLiteRows.open(path))
    pairs: list[str] = [record.id async for record in store.scan("pair")]
    assert [pair for pair in pairs if pair.endswith("left")] == [pair.replace("right", "left") for pair in pairs[1::2]]
    found = set()
    async for record in store.scan("witness"):
        number = record.body["number"]
        assert record.body == {**BODY, "number": number}
        assert record.vector is not None
        assert np.array_equal(record.vector, vector(number))
        found.add(number)
    await store.close()
    return found


@pytest.mark.parametrize("waves", [2, pytest.param(10, marks=pytest.mark.all)])
def test_writers_killed_at_random_moments(tmp_path: Path, writers: Writers, waves: int) -> None:
    chance = random.Random(5)
    known: dict[str, set[int]] = {str(slot): set() for slot in range(AT_ONCE)}
    judged = 0
    for _ in range(waves):
        begin = time.monotonic()
        moments = sorted((begin + chance.uniform(0.05, 2.0), slot) for slot in known)
        running = {
            slot: writers.start(slot, "write", tmp_path / f"{slot}.sqlite", max(known[slot], default=-1) + 100_000)
            for slot in known
        }
        killed = {}
        for moment, slot in moments:
            time.sleep(max(moment - time.monotonic(), 0))
            killed[slot] = time.monotonic()
            os.kill(running[slot], signal.SIGKILL)
        time.sleep(0.1)  # until they are gone
        for slot, numbers in known.items():
            path = tmp_path / f"{slot}.sqlite"
            if not path.exists():  # killed before it could make it
                continue
            assert sound(path)
            found = asyncio.run(numbers_in(path))
            old = {n for n, when in writers.puts.get(slot, {}).items() if when < killed[slot] - 1.0}
            judged += len(old)
            assert old <= found, f"{len(old - found)} records older than a second are missing"
            assert numbers <= found, "records of an earlier run are missing"
            known[slot] = found
    assert judged > 100 * waves


async def test_a_change_of_the_passphrase_killed_halfway(tmp_path: Path, writers: Writers) -> None:
    path = tmp_path / "memory.sqlite"
    store = await Store.open(await SQLiteRows.open(path), crypto=NativeCrypto())
    records = [Record("pattern", f"{n:03d}", BODY, vector(n), 1.0, 1.0) for n in range(300)]
    await store.put_many(records)
    await set_passphrase(store, PASSPHRASES[0], iterations=1)
    await store.close()
    chance = random.Random(6)
    ends = set()
    for _ in range(12):
        pid = writers.start("0", "rekey", path)
        await asyncio.sleep(chance.uniform(0.0, 0.2))
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)
        assert sound(path)
        store, end = await opened(path)
        ends.add(end)
        assert [record async for record in store.scan()] == records
        await store.close()
    assert ends == {0, 1}


async def test_who_is_killed_while_he_encrypts_loses_nothing_and_goes_on_at_the_next_start(
    tmp_path: Path, writers: Writers
) -> None:
    """Later and later, until the passphrase was set when he died."""
    is_encrypted = False
    for turn in range(100):
        folder, before = tmp_path / str(turn), Secrets(2000)
        folder.mkdir()
        store = await Store.open(await SQLiteRows.open(folder / "memory.sqlite"))
        await store.put_many(before.records)
        await store.close()
        pid = writers.start("0", "rekey", folder / "memory.sqlite")
        await asyncio.sleep(0.04 * turn)
        os.kill(pid, signal.SIGKILL)

        store, _ = await opened(folder / "memory.sqlite")
        assert [record async for record in store.scan()] == before.records
        is_encrypted = store.lock is not None
        assert (before.found_in(folder) == {}) is is_encrypted
        await store.close()
        if is_encrypted:
            break
    assert is_encrypted
