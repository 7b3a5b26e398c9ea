"""Every backend, empty, ready to be opened and opened again."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from page import BrowserThread, PageCrypto, PageRows, Tab
from playwright.async_api import Browser

from py_core.memory.encryption import Crypto, NativeCrypto
from py_core.memory.passphrase import set_passphrase
from py_core.memory.rows import Rows
from py_core.memory.sqlite import SQLiteRows
from py_core.memory.store import Store
from py_core.memory.volatile import VolatileRows

PASSPHRASE = "correct horse"
FEW_ITERATIONS = 1000
LASTING = ["sqlite", "sqlite encrypted", "indexeddb", "indexeddb encrypted"]
BACKENDS = ["volatile", *LASTING]
_numbers = itertools.count()


@dataclass
class Place:
    """Where a backend keeps one database."""

    rows: Callable[[], Awaitable[Rows]]
    crypto: Crypto
    encrypted: bool
    opened: list[Store] = field(default_factory=list)

    async def open(self, **options: Any) -> Store:
        """Open the database, and close it at the end of the test. The first time it is made, with its passphrase."""
        passphrase = PASSPHRASE if self.encrypted else None
        store = await Store.open(await self.rows(), passphrase, crypto=self.crypto, **options)
        self.opened.append(store)
        if self.encrypted and store.lock is None:
            await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
        return store


def make_place(name: str, folder: Path, tab: Callable[[], Tab]) -> Place:
    """A new place of a backend of BACKENDS."""
    encrypted = name.endswith("encrypted")
    database = f"memory-{next(_numbers)}"
    if name == "volatile":
        rows = VolatileRows()

        async def same() -> Rows:
            return rows

        return Place(same, NativeCrypto(), encrypted)
    if name.startswith("sqlite"):
        return Place(lambda: SQLiteRows.open(folder / f"{database}.sqlite"), NativeCrypto(), encrypted)
    return Place(lambda: PageRows.open(tab(), database), PageCrypto(tab()), encrypted)


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[BrowserThread]:
    thread = BrowserThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def chromium(browser_thread: BrowserThread, chromium_path: Path) -> Iterator[Browser]:
    browser = browser_thread.launch(chromium_path)
    yield browser
    browser_thread.wait(browser.close())


@pytest.fixture(scope="session")
def get_tab(request: pytest.FixtureRequest) -> Callable[[], Tab]:
    """A tab that all tests may use, opened when it is needed first."""
    found: list[Tab] = []

    def tab() -> Tab:
        if not found:
            values = (request.getfixturevalue(name) for name in ("browser_thread", "chromium", "site"))
            found.append(Tab.open(*values))
        return found[0]

    return tab


@pytest_asyncio.fixture(params=BACKENDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Place]:
    made = make_place(request.param, tmp_path, get_tab)
    yield made
    for store in made.opened:
        await store.close()


@pytest_asyncio.fixture(params=LASTING)
async def lasting(request: pytest.FixtureRequest, tmp_path: Path, get_tab: Callable[[], Tab]) -> AsyncIterator[Place]:
    """A place that is still there after its store was closed."""
    made = make_place(request.param, tmp_path, get_tab)
    yield made
    for store in made.opened:
        await store.close()


@pytest_asyncio.fixture
async def store(place: Place) -> Store:
    return await place.open()
