"""Encryption in the page: WebCrypto by web/memory/encryption.js. The key cannot be read, not even by the page."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from pyodide.ffi import JsException, to_js

from py_core.messages_browser import js_words
from py_core.store.encryption import NONCE_BYTES, TAG_BYTES, Cipher, WrongKeyError
from py_core.store.errors import StoreError


class BrowserCrypto:
    """`Crypto` with the function `deriveCipher` of web/memory/encryption.js."""

    def __init__(self, derive_cipher: Any) -> None:
        self._derive_cipher = derive_cipher

    async def derive(self, passphrase: bytes, salt: bytes, iterations: int) -> Cipher:
        try:
            return _BrowserCipher(await self._derive_cipher(to_js(passphrase), to_js(salt), iterations))
        except JsException as error:
            raise StoreError("unavailable", js_words(error)) from error


class _BrowserCipher:
    """Seals or opens many items in one call: their bytes in a row, and their lengths."""

    def __init__(self, cipher: Any) -> None:
        self._cipher = cipher

    async def seal(self, plain: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        return await self._call(self._cipher.seal, plain, contexts, NONCE_BYTES + TAG_BYTES)

    async def open(self, sealed: Sequence[bytes], contexts: Sequence[bytes]) -> list[bytes]:
        if any(len(data) < NONCE_BYTES + TAG_BYTES for data in sealed):
            raise WrongKeyError
        return await self._call(self._cipher.open, sealed, contexts, -NONCE_BYTES - TAG_BYTES)

    async def _call(self, call: Any, items: Sequence[bytes], contexts: Sequence[bytes], growth: int) -> list[bytes]:
        lengths, context_lengths = (to_js(memoryview(array("I", map(len, list_)))) for list_ in (items, contexts))
        try:
            made = await call(to_js(b"".join(items)), lengths, to_js(b"".join(contexts)), context_lengths)
        except JsException as error:
            if error.name == "OperationError":
                raise WrongKeyError from None
            raise
        data = made.to_bytes()
        ends = list(accumulate(len(item) + growth for item in items))
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
