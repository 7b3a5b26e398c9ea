"""Encryption at rest, with a passphrase.

Bodies and vectors are encrypted; kinds, ids, times and sizes stay in the clear, and nothing is indexed by content. The
cipher is AES-256-GCM with a random 96-bit nonce for each body and vector, bound to its record (kind, id, and body or
vector), so data that is moved to another record does not open. The key is PBKDF2-HMAC-SHA256 of the passphrase, 600,000
iterations, 16 random bytes of salt. A stored value that only the right key opens (the verifier) reveals a wrong
passphrase before anything is changed. The bytes are the same natively (`cryptography`) and in the page (WebCrypto, in
encryption_browser.py), so an export opens in both.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.store.errors import StoreError
from py_core.store.records import decode_body

SHORTEST_PASSPHRASE = 8  # characters; anybody with the file can try any number of passphrases
ITERATIONS = 600_000
MOST_ITERATIONS = 10_000_000  # a foreign header must not cause endless work
ALGORITHMS = {"cipher": "AES-256-GCM", "kdf": "PBKDF2-HMAC-SHA256"}
NONCE_BYTES, TAG_BYTES, SALT_BYTES = 12, 16, 16
_VERIFIER = b"sonata memory"


class WrongKeyError(Exception):
    """The bytes are not encrypted with this key, or are damaged."""


class Cipher(Protocol):
    """A key that encrypts. Sealed bytes are nonce | ciphertext | tag."""

    async def seal(self, plain: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]: ...

    async def open(self, sealed: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        """Open sealed bytes. Raises WrongKeyError unless all were sealed with this key and these contexts."""
        ...


class Crypto(Protocol):
    """Makes keys: NativeCrypto or BrowserCrypto."""

    async def derive(self, passphrase: bytes, salt: bytes, iterations: int) -> Cipher: ...


@dataclass(frozen=True, slots=True)
class Lock:
    """A cipher, and the header that is stored in the clear beside the encrypted data: JSON, without secrets."""

    cipher: Cipher
    header: str


async def new_lock(crypto: Crypto, passphrase: str, iterations: int = ITERATIONS) -> Lock:
    """Make a key with a new salt. Raises StoreError if the passphrase is too short."""
    if len(passphrase.strip()) < SHORTEST_PASSPHRASE:
        raise StoreError(
            "passphrase",
            "passphrase.too-short",
            "This passphrase is too short. Use at least {most} characters.",
            most=SHORTEST_PASSPHRASE,
        )
    salt = os.urandom(SALT_BYTES)
    cipher = await crypto.derive(_normalized(passphrase), salt, iterations)
    (verifier,) = await cipher.seal([_VERIFIER], [_VERIFIER])
    header = {**ALGORITHMS, "iterations": iterations, "salt": _text(salt), "verifier": _text(verifier)}
    return Lock(cipher, json.dumps(header, sort_keys=True))


async def unlock(crypto: Crypto, passphrase: str, header: str) -> Lock:
    """The key of a header. Raises StoreError: passphrase (wrong), damaged (not a header of Sonata)."""
    try:
        values = decode_body(header.encode())
        salt, verifier = (base64.b64decode(values[name], validate=True) for name in ("salt", "verifier"))
        iterations = values["iterations"]
        ours = {name: values[name] for name in ALGORITHMS} == ALGORITHMS
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError("damaged") from error
    if not ours or type(iterations) is not int or not 0 < iterations <= MOST_ITERATIONS or len(salt) != SALT_BYTES:
        raise StoreError(
            "damaged",
            "memory.unknown-encryption",
            "This version of Sonata does not know this kind of encryption. Update Sonata.",
        )
    cipher = await crypto.derive(_normalized(passphrase), salt, iterations)
    try:
        opened = await cipher.open([verifier], [_VERIFIER])
    except WrongKeyError:
        raise StoreError("passphrase") from None
    if opened != [_VERIFIER]:
        raise StoreError("damaged")
    return Lock(cipher, header)


class NativeCrypto:
    """Encryption by the package `cryptography`."""

    async def derive(self, passphrase: bytes, salt: bytes, iterations: int) -> Cipher:
        return await asyncio.to_thread(_derive, passphrase, salt, iterations)


def _derive(passphrase: bytes, salt: bytes, iterations: int) -> Cipher:
    from cryptography.hazmat.primitives.hashes import SHA256  # not in the page
    from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

    return _NativeCipher(PBKDF2HMAC(SHA256(), 32, salt, iterations).derive(passphrase))


class _NativeCipher:
    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aes = AESGCM(key)

    async def seal(self, plain: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        nonces = [os.urandom(NONCE_BYTES) for _ in plain]
        return [n + self._aes.encrypt(n, data, c) for n, data, c in zip(nonces, plain, contexts, strict=True)]

    async def open(self, sealed: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        from cryptography.exceptions import InvalidTag

        if any(len(data) < NONCE_BYTES + TAG_BYTES for data in sealed):
            raise WrongKeyError
        try:
            return [
                self._aes.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context)
                for data, context in zip(sealed, contexts, strict=True)
            ]
        except InvalidTag:
            raise WrongKeyError from None


def _normalized(passphrase: str) -> bytes:
    """The passphrase in one form, independent of how a keyboard composes accents."""
    return unicodedata.normalize("NFKC", passphrase).encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
