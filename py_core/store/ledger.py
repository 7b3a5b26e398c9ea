"""The expected content of an encrypted memory: a checksum of its rows that only the key can make, kept beside the key.

Encryption alone does not show that a row was deleted, put back to an older state, or given another time. For each kind,
the ledger has the number of rows and the sum, modulo 2^256, of a keyed hash of each row: of its name, its times and the
tags of its ciphertexts. Every write changes the ledger in the same transaction, at a cost proportional to the rows
written: unlike a chain, a sum also follows rows that are deleted and replaced in any order. The ledger and the secret
of its hashes are sealed with the memory's key, so nobody else can compute either. The ledger does not show that the
whole memory was put back to an older state.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from py_core.messages import Message
from py_core.store.encryption import TAG_BYTES, Lock, WrongKeyError
from py_core.store.errors import StoreError
from py_core.store.kinds import Kinds
from py_core.store.records import decode_body
from py_core.store.rows import ATTEMPTS, BLOB, EVERYTHING, NAMELESS, Batch, Key, Row, Rows

LEDGER = "ledger"
"""The ledger's name in meta. Encrypted memories have had a ledger since version 4."""

LOCK_GONE = Message(
    "ledger.not-encrypted",
    "This memory was encrypted with a passphrase, and now it is not. If you did not remove the "
    "passphrase or delete the memory, something other than Sonata did. What you write now is not "
    "encrypted.",
)
NO_LEDGER = Message("ledger.removed", "the checksum of all items was removed")
Step = Callable[[], AbstractAsyncContextManager[None]]
TOGETHER = 200  # rows that are compared in a step
_CONTEXT = b"sonata memory ledger"
_BYTES = 32
_MODULUS = 1 << (8 * _BYTES)


def tampered(differences: Sequence[Message]) -> Message:
    return Message(
        "ledger.changed",
        "Something other than Sonata changed the memory: {what}.",
        what=list(differences),
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """kinds: for each kind the number of its rows, and the sum of their hashes."""

    secret: bytes = field(default_factory=lambda: os.urandom(_BYTES), repr=False)
    kinds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def changed(self, removed: Iterable[Row], added: Iterable[Row], cleared: str | None = None) -> Ledger:
        """The ledger after a transaction. removed: the deleted or replaced rows as they were, except for `cleared`."""
        kinds = {} if cleared == EVERYTHING else {kind: sums for kind, sums in self.kinds.items() if kind != cleared}
        for sign, rows in ((-1, removed), (1, added)):
            for row in rows:
                is_counted = row.kind != BLOB and not row.id.startswith(NAMELESS)
                if is_counted and not (sign < 0 and cleared in (EVERYTHING, row.kind)):
                    count, total = kinds.get(row.kind, (0, 0))
                    kinds[row.kind] = count + sign, (total + sign * self._hash(row)) % _MODULUS
        return replace(self, kinds={kind: sums for kind, sums in kinds.items() if sums != (0, 0)})

    def differences(self, found: Ledger, names: Kinds) -> list[Message]:
        """Describe in words how another ledger of the same secret, made of the actual rows, differs from this one."""
        said = list[Message]()
        for kind in sorted(self.kinds.keys() | found.kinds.keys()):
            (count, total), (now, sum_now) = (kinds.get(kind, (0, 0)) for kinds in (self.kinds, found.kinds))
            one, many = names[kind].noun(1), names[kind].noun(2)
            if now < count:
                said.append(_missing(count - now, one, many))
            elif now > count:
                said.append(_added(now - count, one, many))
            elif total != sum_now:
                said.append(Message("ledger.rows-changed", "{nouns} were changed, or their times", nouns=many))
        return said

    def _hash(self, row: Row) -> int:
        tags = row.body[-TAG_BYTES:] + (b"" if row.vector is None else row.vector[-TAG_BYTES:])
        name = f"{row.kind}\0{row.id}\0".encode("utf-8", "surrogatepass")
        data = name + struct.pack("<dd", row.created, row.updated) + tags
        return int.from_bytes(hashlib.blake2b(data, digest_size=_BYTES, key=self.secret).digest(), "little")


def _missing(count: int, one: Message, many: Message) -> Message:
    if count == 1:
        return Message("ledger.one-missing", "1 {noun} is missing", noun=one)
    return Message("ledger.missing", "{count} {nouns} are missing", count=f"{count:,}", nouns=many)


def _added(count: int, one: Message, many: Message) -> Message:
    if count == 1:
        return Message("ledger.one-added", "1 {noun} was added", noun=one)
    return Message("ledger.added", "{count} {nouns} were added", count=f"{count:,}", nouns=many)


async def seal_ledger(ledger: Ledger, lock: Lock) -> str:
    """The sealed text of the ledger, as it is kept in meta."""
    kinds = {kind: [count, f"{total:x}"] for kind, (count, total) in ledger.kinds.items()}
    plain = json.dumps({"secret": ledger.secret.hex(), "kinds": kinds}).encode()
    return base64.b64encode((await lock.cipher.seal([plain], [_CONTEXT]))[0]).decode()


async def open_ledger(text: str, lock: Lock) -> Ledger | None:
    """Return the ledger; None if it is missing, or is not what was sealed."""
    try:
        (plain,) = await lock.cipher.open([base64.b64decode(text, validate=True)], [_CONTEXT])
        values = decode_body(plain)
        kinds = {kind: (int(count), int(total, 16)) for kind, (count, total) in values["kinds"].items()}
        return Ledger(bytes.fromhex(values["secret"]), kinds)
    except (WrongKeyError, StoreError, ValueError, KeyError, TypeError):
        return None


def keys_of(batch: Batch) -> list[Key]:
    """The keys of rows that a batch deletes or replaces, if they exist."""
    return list(dict.fromkeys([*batch.deletes, *(row.key for row in batch.puts)]))


class KeptLedger:
    """The ledger in the meta of rows that are encrypted with `lock`."""

    def __init__(self, rows: Rows, lock: Lock, kinds: Kinds) -> None:
        self._rows, self._lock, self._kinds = rows, lock, kinds
        self._known: tuple[str | None, Ledger | None] = (None, None)  # as meta has it, and its content

    async def apply(self, batch: Batch) -> None:
        """Apply a batch, and change the ledger in the same transaction. Raises StoreError as Rows.apply does."""
        text, ledger = self._known if self._known[1] else await self._read()
        for _ in range(ATTEMPTS):
            replaced = await self._rows.get(keys_of(batch))
            changed = (ledger or Ledger()).changed(
                replaced, batch.puts, batch.clear
            )  # `differences` reports a lost one
            sealed = await seal_ledger(changed, self._lock)
            whole = replace(
                batch,
                meta={**batch.meta, LEDGER: sealed},
                expect_meta={**batch.expect_meta, LEDGER: text},
            )
            try:
                await self._rows.apply(whole)
                self._known = sealed, changed
                return
            except StoreError as error:
                before = text
                text, ledger = await self._read()
                if error.reason != "changed" or text == before:
                    raise  # otherwise another program has changed the ledger since it was read
        raise StoreError("busy")

    async def differences(self, step: Step) -> list[Message]:
        """The differences between the ledger and the actual rows, in words."""
        for _ in range(ATTEMPTS):
            text, kept = await self._read()
            if kept is None:
                return [NO_LEDGER]
            found, after, more = Ledger(kept.secret), None, True
            while more:
                async with step():
                    rows = await self._rows.scan(None, after, TOGETHER)
                    found, after = found.changed([], rows), rows[-1].key if rows else None
                    more = bool(rows)
            if await self._text() == text:  # nothing was written meanwhile
                return kept.differences(found, self._kinds)
        return []

    async def _read(self) -> tuple[str | None, Ledger | None]:
        text = await self._text()
        if text != self._known[0]:
            self._known = text, await open_ledger(text or "", self._lock)
        return self._known

    async def _text(self) -> str | None:
        return (await self._rows.meta()).get(LEDGER)
