"""The place of each backend's database, for the tests that every backend passes."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.records.kinds import KINDS
from py_core.store.encryption import Crypto, NativeCrypto
from py_core.store.kinds import Kinds
from py_core.store.passphrase import set_passphrase
from py_core.store.rows import Rows
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows
from tests.store.browser.page import PageCrypto, PageRows, Tab

PASSPHRASE = "correct horse"
FEW_ITERATIONS = 1000
LASTING = ["sqlite", "sqlite encrypted", "indexeddb", "indexeddb encrypted"]
BACKENDS = ["volatile", *LASTING]
SEMANTIC = ["sqlite", "sqlite encrypted"]
IN_THE_PAGE = "indexeddb encrypted"
"""The places for testing the layers above the store: in the gate natively, plain and encrypted; with `all` in a page,
too, where each call takes ten times as long."""
_UNCHECKED: dict[str, Any] = {"fields": None, "vector": "optional", "problem": lambda record: None}
ANY_BODY = Kinds([replace(kind, **_UNCHECKED) for kind in KINDS], others=True)
"""The kinds of Sonata with their indexes and migrations, but without checks; and any other kind."""
_numbers = itertools.count()


@dataclass
class Place:
    """The place of one database of a backend."""

    rows: Callable[[], Awaitable[Rows]]
    crypto: Crypto
    encrypted: bool
    opened: list[Store] = field(default_factory=list)

    async def open(self, **options: Any) -> Store:
        """Open the database, and close it at the end of the test. The first time it is created, with its passphrase."""
        passphrase = PASSPHRASE if self.encrypted else None
        options = {"kinds": ANY_BODY, **options}
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
