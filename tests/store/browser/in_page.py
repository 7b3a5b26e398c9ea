"""Runs in Pyodide, in the worker of the tests' page: the page's own rows and cryptography, driven by page.py.

Everything crosses as JSON, bytes in base64. Functions whose names begin with `do_` can be called.
"""

import base64
import json

from py_core.store.encryption import Cipher, WrongKeyError
from py_core.store.encryption_browser import BrowserCrypto
from py_core.store.errors import StoreError
from py_core.store.indexeddb import IndexedDBRows
from py_core.store.packing import pack, unpack
from py_core.store.rows import Batch, Change, Query, Range

crypto = BrowserCrypto(derive_cipher)  # noqa: F821 - web/memory/encryption.js, given by page_worker.js
opened: list[IndexedDBRows] = []
ciphers: list[Cipher] = []
heard: dict[int, list[dict]] = {}


async def call(name: str, argument: str) -> str:
    try:
        return json.dumps({"value": await globals()[f"do_{name}"](*json.loads(argument))})
    except StoreError as error:
        return json.dumps({"reason": error.reason, "sentence": str(error)})
    except WrongKeyError:
        return json.dumps({"reason": "wrong key"})


async def do_open(name):
    opened.append(await IndexedDBRows.open(memory_store, name))  # noqa: F821 - web/memory/indexeddb.js
    number = len(opened) - 1
    heard[number] = []
    opened[number].listen(lambda change: heard[number].append(_change(change)))
    return number


async def do_close(number):
    await opened[number].close()


async def do_meta(number):
    return await opened[number].meta()


async def do_get(number, keys):
    return packed(await opened[number].get([tuple(key) for key in keys]))


async def do_scan(number, kind, after, limit):
    return packed(await opened[number].scan(kind, after and tuple(after), limit))


async def do_query(number, kind, where, *others):
    ranges = {name: Range(*value) if isinstance(value, list) else value for name, value in where.items()}
    return packed(await opened[number].query(Query(kind, ranges, *others)))


async def do_count(number, kind):
    return await opened[number].count(kind)


async def do_apply(number, head, data, deletes, clear, meta, expect_meta, expect_versions):
    batch = Batch(
        unpack(head, base64.b64decode(data)),
        [tuple(key) for key in deletes],
        clear,
        meta,
        expect_meta,
        {(kind, id): version for kind, id, version in expect_versions},
    )
    return await opened[number].apply(batch)


async def do_was_locked(number):
    return await opened[number].was_locked()


async def do_note_locked(number, locked):
    await opened[number].note_locked(locked)


async def do_compact(number):
    await opened[number].compact()


async def do_heard(number):
    changes, heard[number] = heard[number], []
    return changes


async def do_derive(passphrase, salt, iterations):
    ciphers.append(await crypto.derive(base64.b64decode(passphrase), base64.b64decode(salt), iterations))
    return len(ciphers) - 1


async def do_seal(number, plain, contexts):
    return coded(await ciphers[number].seal(decoded(plain), decoded(contexts)))


async def do_unseal(number, sealed, contexts):
    return coded(await ciphers[number].open(decoded(sealed), decoded(contexts)))


async def do_run(source, *arguments):
    """Defines `main(*arguments)` and calls it."""
    scope = {**globals()}
    exec(source, scope)
    return await scope["main"](*arguments)


def packed(rows):
    head, data = pack(rows)
    return [head, base64.b64encode(data).decode()]


def coded(items):
    return [base64.b64encode(item).decode() for item in items]


def decoded(items):
    return [base64.b64decode(item) for item in items]


def _change(change: Change):
    return [change.puts, change.deletes, change.cleared, change.elsewhere, change.everything]
