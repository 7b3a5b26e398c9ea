"""With a passphrase nothing can be read without it, and it can be changed and removed without losing anything."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from py_core.store.encryption import NativeCrypto, WrongKeyError, new_lock, unlock
from py_core.store.errors import StoreError
from py_core.store.passphrase import remove_passphrase, set_passphrase
from py_core.store.records import Record
from py_core.store.rows import Batch
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store
from tests.store.browser.page import PageCrypto, Tab
from tests.store.places import ANY_BODY, FEW_ITERATIONS, IN_THE_PAGE, PASSPHRASE, SEMANTIC, Place, make_place

SECRET = "the meeting is at noon"
VECTOR = np.arange(1, 33, dtype=np.float32) / 7
RECORDS = [Record("pattern", f"p{n}", {"agent": SECRET, "text": SECRET}, VECTOR * n, n, n) for n in range(1, 30)]


async def everything(store: Store) -> list[Record]:
    return sorted([r async for r in store.scan()], key=lambda r: r.created or 0)


async def opening(place: Place, passphrase: str | None) -> Store:
    store = await Store.open(await place.rows(), passphrase, crypto=place.crypto, kinds=ANY_BODY)
    place.opened.append(store)
    return store


@pytest.mark.parametrize("lasting", [*SEMANTIC, IN_THE_PAGE], indirect=True)
async def test_the_passphrase_is_set_changed_and_removed(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    old = PASSPHRASE if lasting.encrypted else None

    await set_passphrase(store, "the first", old=old, iterations=FEW_ITERATIONS)
    assert await everything(store) == RECORDS
    await set_passphrase(store, "the second", old="the first", iterations=FEW_ITERATIONS)
    await store.put(replace(RECORDS[0], body={"agent": "after"}))
    for wrong in ("the first", "The second", "the second ", ""):
        with pytest.raises(StoreError, match="Wrong passphrase") as raised:
            await opening(lasting, wrong)
        assert raised.value.reason == "passphrase"
    with pytest.raises(StoreError, match="Type the passphrase") as raised:
        await opening(lasting, None)
    assert raised.value.reason == "locked"
    again = await opening(lasting, "the second")
    assert await everything(again) == [replace(RECORDS[0], body={"agent": "after"}), *RECORDS[1:]]
    assert [r.id for r in await again.query("pattern", {"agent": "after"})] == ["p1"]

    await remove_passphrase(again, "the second")
    clear = await opening(lasting, None)
    assert await everything(clear) == await everything(again)
    assert len(await clear.query("pattern", {"agent": SECRET})) == len(RECORDS) - 1  # they are indexed again


async def test_the_old_passphrase_is_asked_for(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    if not lasting.encrypted:
        await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    for wrong in (None, "guess"):
        with pytest.raises(StoreError) as raised:
            await set_passphrase(store, "mine alone", old=wrong, iterations=FEW_ITERATIONS)
        assert raised.value.reason == "passphrase"
    with pytest.raises(StoreError):
        await remove_passphrase(store, "guess")
    with pytest.raises(StoreError, match="at least 8 characters"):
        await set_passphrase(store, "letters", old=PASSPHRASE)
    assert await everything(await opening(lasting, PASSPHRASE)) == RECORDS


async def test_whoever_had_it_open_before_can_neither_write_nor_misread(lasting: Place) -> None:
    one, other = await lasting.open(), await lasting.open()
    await one.put_many(RECORDS)
    old = PASSPHRASE if lasting.encrypted else None
    await set_passphrase(one, "a new one", old=old, iterations=FEW_ITERATIONS)

    with pytest.raises(StoreError, match="Reload") as raised:
        await other.put(Record("pattern", "lost?"))
    assert raised.value.reason == "changed"
    with pytest.raises(StoreError) as raised:
        await everything(other)
    assert raised.value.reason == "changed"
    assert not other.unreadable
    assert await everything(one) == RECORDS


async def test_what_another_writes_during_the_change_is_kept(lasting: Place) -> None:
    one, other = await lasting.open(), await lasting.open()
    await one.put_many(RECORDS)
    late = Record("pattern", "late", {}, None, 99.0, 99.0)
    scan = one._rows.scan

    async def scan_and_be_interrupted(*asked):
        found = await scan(*asked)
        if await other.get("pattern", "late") is None:
            await other.put(late)
        return found

    one._rows.scan = scan_and_be_interrupted  # type: ignore[method-assign]
    old = PASSPHRASE if lasting.encrypted else None
    await set_passphrase(one, "a new one", old=old, iterations=FEW_ITERATIONS)
    assert await everything(await opening(lasting, "a new one")) == [*RECORDS, late]


@pytest.mark.parametrize("lasting", ["sqlite encrypted", "indexeddb encrypted"], indirect=True)
async def test_bytes_of_one_record_do_not_open_as_anothers(lasting: Place) -> None:
    store = await lasting.open()
    await store.put_many(RECORDS)
    rows = await lasting.rows()
    (row,) = await rows.get([("pattern", "p1")])
    for moved in (replace(row, id="p2"), replace(row, body=row.vector), replace(row, body=row.body[:-1])):
        await rows.apply(Batch(puts=[moved]))
        assert await store.get("pattern", moved.id) is None
        assert moved.key in store.unreadable
    assert await store.get("pattern", "p3") == RECORDS[2]
    await rows.close()


async def test_no_file_of_sqlite_has_a_word_of_it(tmp_path: Path, get_tab: Callable[[], Tab]) -> None:
    place = make_place("sqlite", tmp_path, get_tab)
    store = await place.open()
    await store.put_many(RECORDS)
    await store.delete("pattern", "p7")
    secrets = [SECRET.encode(), (VECTOR * 9).tobytes(), SECRET[:11].encode()]

    def readable() -> list[bytes]:
        files = [path.read_bytes() for path in tmp_path.iterdir()]
        return [secret for secret in secrets if any(secret in data for data in files)]

    assert readable() == secrets
    await set_passphrase(store, PASSPHRASE, iterations=FEW_ITERATIONS)
    assert readable() == []
    await store.put_many(RECORDS)
    assert readable() == []
    await store.close()
    assert readable() == []


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    rows = await SQLiteRows.open(tmp_path / "deep" / "memory.sqlite")
    assert rows.place.endswith("memory.sqlite")
    assert (tmp_path / "deep" / "memory.sqlite").stat().st_mode & 0o777 == 0o600
    await rows.close()


async def test_the_key_is_pbkdf2_and_the_cipher_aes_gcm() -> None:
    """Checked with other implementations than those that made it."""
    lock = await new_lock(NativeCrypto(), "pässphrase")
    header = json.loads(lock.header)
    assert header["iterations"] == 600_000
    salt = b64decode(header["salt"])
    key = hashlib.pbkdf2_hmac("sha256", "pässphrase".encode(), salt, 600_000)
    sealed, other = await lock.cipher.seal([b"plain", b"plain"], [b"context", b"context"])
    assert sealed != other
    assert AESGCM(key).decrypt(sealed[:12], sealed[12:], b"context") == b"plain"
    decomposed = "pa\u0308ssphrase"
    same = await unlock(NativeCrypto(), decomposed, lock.header)
    assert await same.cipher.open([sealed], [b"context"]) == [b"plain"]


async def test_the_page_and_python_open_each_others_bytes(get_tab: Callable[[], Tab]) -> None:
    cryptos = [NativeCrypto(), PageCrypto(get_tab())]
    plain = [b"", b"a", bytes(range(256)) * 50]
    contexts = [b"1", b"", b"3"]
    for one, other in (cryptos, cryptos[::-1]):
        lock = await new_lock(one, "geheim ä", FEW_ITERATIONS)
        there = await unlock(other, "geheim ä", lock.header)
        sealed = await lock.cipher.seal(plain, contexts)
        assert await there.cipher.open(sealed, contexts) == plain
        for bad, bound in (([sealed[0][:-1]], [b"1"]), ([sealed[1]], [b"x"]), ([b""], [b""])):
            with pytest.raises(WrongKeyError):
                await there.cipher.open(bad, bound)
        with pytest.raises(StoreError):
            await unlock(other, "geheim", lock.header)


@pytest.mark.parametrize(
    "change",
    [
        {"iterations": 10**12},
        {"iterations": "many"},
        {"salt": "!"},
        {"salt": "AAAA"},
        {"cipher": "ROT13"},
        {"verifier": None},
        {"verifier": "AAAA"},
    ],
)
async def test_a_header_that_is_not_ours_is_refused(change: dict) -> None:
    lock = await new_lock(NativeCrypto(), PASSPHRASE, FEW_ITERATIONS)
    header = json.dumps({**json.loads(lock.header), **change})
    with pytest.raises(StoreError):
        await unlock(NativeCrypto(), PASSPHRASE, header)
