"""Set, change and remove the passphrase of a memory. See encryption.py for what it protects."""

from __future__ import annotations

from py_core.store.encryption import ITERATIONS, new_lock, unlock
from py_core.store.errors import StoreError
from py_core.store.store import Store


async def set_passphrase(
    store: Store, passphrase: str, *, old: str | None = None, iterations: int = ITERATIONS
) -> None:
    """Encrypt everything with a passphrase, in one step that is done completely or not at all.

    old: the current passphrase, if there is one. Raises StoreError("passphrase") if it is wrong. SQLite overwrites data
    that it stored in the clear before. A browser gives no such promise: its files keep the old bytes until it cleans
    them up.
    """
    await _check(store, old)
    await store.rekey(await new_lock(store.crypto, passphrase, iterations))


async def remove_passphrase(store: Store, old: str) -> None:
    """Store everything in the clear again, in one step."""
    await _check(store, old)
    await store.rekey(None)


async def _check(store: Store, passphrase: str | None) -> None:
    if store.lock is None:
        return
    if passphrase is None:
        raise StoreError("passphrase", "passphrase.current", "Type the current passphrase, too.")
    await unlock(store.crypto, passphrase, store.lock.header)
