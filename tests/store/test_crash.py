"""kill -9 at random moments: nothing that was stored is missing, and nothing is incomplete."""

from __future__ import annotations

import asyncio
import contextlib
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

from py_core.store.encryption import NativeCrypto
from py_core.store.passphrase import set_passphrase
from py_core.store.records import Record
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.store.crash_writer import BODY, PASSPHRASES, opened, vector
from tests.store.leftovers import Secrets
from tests.store.places import ANY_BODY

ROOT = Path(__file__).parents[2]


class Writers:
    """Processes of crash_writer.py, and their output."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("crash_writer.py"))]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pids: dict[str, int] = {}
        self.stored: dict[str, list[int]] = {}
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
                    self.stored.setdefault(slot, []).append(int(rest[0]))
                self._said.notify_all()

    def start(self, slot: str, mode: str, path: Path, start: int = 0) -> int:
        """Returns the process, once it is at work."""
        self.pids.pop(slot, None)
        said = "-" if mode == "rekey" else slot
        self.stored.pop(said, None)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{slot} {mode} {path} {start}\n")
        self._process.stdin.flush()
        with self._said:
            self._said.wait_for(lambda: slot in self.pids and said in self.stored)
        return self.pids[slot]

    def wait_for(self, slot: str, times: int) -> None:
        """Wait until it has reported this number of times that something is stored."""
        with self._said:
            self._said.wait_for(lambda: len(self.stored[slot]) >= times)

    def kill(self, slot: str) -> int:
        """Returns the last number that was certainly stored."""
        last, pid = self.stored[slot][-1] if slot in self.stored else -1, self.pids[slot]
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            while True:  # until it is gone
                os.kill(pid, 0)
                time.sleep(0.001)
        return last

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
    """The numbers of all records, each of which must be complete."""
    store = await Store.open(await SQLiteRows.open(path), kinds=ANY_BODY)
    pairs: list[str] = [record.id async for record in store.scan("pair")]
    assert [pair for pair in pairs if pair.endswith("left")] == [pair.replace("right", "left") for pair in pairs[1::2]]
    found = set()
    async for record in store.scan("measure"):
        number = record.body["number"]
        assert record.body == {**BODY, "number": number}
        assert record.vector is not None
        assert np.array_equal(record.vector, vector(number))
        found.add(number)
    await store.close()
    return found


@pytest.mark.parametrize(("at_once", "waves"), [(2, 1), pytest.param(5, 10, marks=pytest.mark.all)])
def test_writers_killed_at_random_moments(tmp_path: Path, writers: Writers, at_once: int, waves: int) -> None:
    chance = random.Random(5)
    known: dict[str, set[int]] = {str(slot): set() for slot in range(at_once)}
    for _ in range(waves):
        begins = {slot: max(numbers, default=-1) + 100_000 for slot, numbers in known.items()}
        for slot, begin in begins.items():
            writers.start(slot, "write", tmp_path / f"{slot}.sqlite", begin)
        for slot, numbers in known.items():
            writers.wait_for(slot, chance.randint(1, 20))
            time.sleep(chance.uniform(0.0, 0.02))  # any moment of a write
            last = writers.kill(slot)
            path = tmp_path / f"{slot}.sqlite"
            assert sound(path)
            found = asyncio.run(numbers_in(path))
            stored = set(range(begins[slot], last + 1))
            assert len(stored) >= 20
            assert stored <= found, f"{len(stored - found)} records that were stored are missing"
            assert numbers <= found, "records of an earlier run are missing"
            known[slot] = found


@pytest.mark.all
async def test_a_change_of_the_passphrase_killed_halfway(tmp_path: Path, writers: Writers) -> None:
    """Repeat until both outcomes were seen, and at least a dozen times."""
    path = tmp_path / "memory.sqlite"
    store = await Store.open(await SQLiteRows.open(path), crypto=NativeCrypto(), kinds=ANY_BODY)
    records = [Record("pattern", f"{n:03d}", BODY, vector(n), 1.0, 1.0) for n in range(300)]
    await store.put_many(records)
    await set_passphrase(store, PASSPHRASES[0], iterations=1)
    await store.close()
    chance = random.Random(6)
    ends = set[int]()
    turn = 0
    while turn < 12 or ends != {0, 1}:
        turn += 1
        writers.start("0", "rekey", path)
        await asyncio.sleep(chance.uniform(0.0, 0.02 * turn))
        writers.kill("0")
        assert sound(path)
        store, end = await opened(path)
        ends.add(end)
        assert [record async for record in store.scan()] == records
        await store.close()


@pytest.mark.all
async def test_who_is_killed_while_he_encrypts_loses_nothing_and_goes_on_at_the_next_start(
    tmp_path: Path, writers: Writers
) -> None:
    """Kill later and later, until the passphrase was set at the time."""
    is_encrypted = False
    turn = 0
    while not is_encrypted:
        folder, before = tmp_path / str(turn), Secrets(2000)
        folder.mkdir()
        store = await Store.open(await SQLiteRows.open(folder / "memory.sqlite"), kinds=ANY_BODY)
        await store.put_many(before.records)
        await store.close()
        writers.start("0", "rekey", folder / "memory.sqlite")
        await asyncio.sleep(0.04 * turn)
        writers.kill("0")

        store, _ = await opened(folder / "memory.sqlite")
        assert [record async for record in store.scan()] == before.records
        is_encrypted = store.lock is not None
        assert (before.found_in(folder) == {}) is is_encrypted
        await store.close()
        turn += 1
