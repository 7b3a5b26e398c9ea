"""Pages of conversations that are kept outside of the backend (on a "shelf"), so that a text is not read twice.

A page's name identifies what it was made from: the model, the page format, the set of LoRA matrices, and all tokens up
to its end. So a page that is found by its name is the right one, and a checksum tells if it is intact. Tokens of pages
that are missing, damaged or of another kind are read again, which only costs time.
"""

from __future__ import annotations

import hashlib
import struct
import time
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

from py_core.adapters.lora import LoraAdapter
from py_core.backends.protocols import AfterPass, HasPages
from py_core.engine.scheduler import Priority, Scheduler
from py_core.paging.page_table import PAGE
from py_core.token_sequence import TokenSequence

AT_ONCE = 8
"""Pages that are read from a shelf before they go to the backend: for a small model a few MB."""

_HEAD = struct.Struct("<4s16sI")
_MAGIC = b"SNP1"
_NEWEST_SHARE = 0.25
"""The newest measurement's weight in an average."""
_FORGIVEN = 0.9
"""Each time that taking a page seems too slow, its time is multiplied by this: a disk may only have been busy."""


class PageShelf(Protocol):
    """Where the pages of a conversation are kept. No method raises."""

    async def names(self) -> Collection[str]: ...

    async def read(self, names: Sequence[str]) -> list[bytes]:
        """The pages with these names, up to the first that is missing."""
        ...

    async def write(self, name: str, data: bytes) -> bool:
        """Keep a page. Return False if there is no room, or nothing is kept of this conversation any more."""
        ...

    async def drop(self, names: Sequence[str]) -> None:
        """Forget pages that are damaged."""
        ...


def page_names(key: str, tokens: Sequence[int]) -> list[str]:
    """The name of each whole page of a text: 32 hexadecimal digits."""
    names, digest = list[str](), hashlib.sha256(key.encode()).digest()
    for end in range(PAGE, len(tokens) + 1, PAGE):
        digest = hashlib.sha256(digest + array("i", tokens[end - PAGE : end]).tobytes()).digest()
        names.append(digest[:16].hex())
    return names


def packed(name: str, data: bytes) -> bytes:
    """A page's bytes together with its name and a checksum."""
    return _HEAD.pack(_MAGIC, bytes.fromhex(name), zlib.crc32(data)) + data


def unpacked(name: str, kept: bytes) -> bytes | None:
    """The bytes of a page; None if they are not what `packed` was given."""
    if len(kept) < _HEAD.size:
        return None
    magic, of, checksum = _HEAD.unpack_from(kept)
    data = kept[_HEAD.size :]
    return data if (magic, of.hex(), checksum) == (_MAGIC, name, zlib.crc32(data)) else None


class PageKeeping:
    """Keeps pages of one model on one backend, which may have no pages. `model` identifies its file's bytes and its
    settings; "" if nothing is to be kept."""

    def __init__(self, paged: HasPages | None, scheduler: Scheduler) -> None:
        self.model = ""
        self._paged, self._scheduler = paged, scheduler
        self._adapters: dict[int, str] = {0: ""}
        self._sets: dict[int, LoraAdapter] = {}
        self.token_seconds = 0.0
        """The seconds that reading a token takes; 0 if not known yet."""
        self.page_seconds = 0.0
        """The seconds that taking a page from a shelf takes; 0 if not known yet."""

    def add_set(self, number: int, adapter: LoraAdapter) -> None:
        """Note that the backend knows a set of LoRA matrices by this number from now on."""
        self._sets[number] = adapter
        self._adapters.pop(number, None)

    def note_read(self, tokens: int, seconds: float) -> None:
        """Note that reading `tokens` tokens of a prompt took `seconds`."""
        if tokens >= PAGE:
            self.token_seconds = _mixed(self.token_seconds, seconds / tokens)

    @property
    def pays(self) -> bool:
        """True if taking a page is faster than reading its tokens, as far as is known."""
        if not self._key(0) or not self.token_seconds or not self.page_seconds:
            return bool(self._key(0))
        if self.page_seconds < PAGE * self.token_seconds:
            return True
        self.page_seconds *= _FORGIVEN
        return False

    async def bring(
        self, sequence: TokenSequence, prompt: Sequence[int], shelf: PageShelf,
        priority: Priority = Priority.INTERACTIVE,
    ) -> None:  # fmt: skip
        """Fill a sequence, which holds a prefix of the prompt, with the pages of it on the shelf. The last token is not
        taken: it has to run."""
        key, first = self._key(sequence.adapter), sequence.stored // PAGE
        names, paged = page_names(key, prompt[: len(prompt) - 1]), self._paged
        if paged is None or not key or first >= len(names) or not self.pays:
            return
        await self._scheduler.call(
            sequence, lambda after_pass: self._bring(paged, sequence, prompt, names, first, shelf, after_pass), priority
        )

    async def _bring(
        self, paged: HasPages, sequence: TokenSequence, prompt: Sequence[int], names: Sequence[str], first: int,
        shelf: PageShelf, after_pass: AfterPass,
    ) -> None:  # fmt: skip
        """Take pages from page `first` on, up to the first that is missing."""
        begin = time.perf_counter()
        there, taken = await shelf.names(), first
        while taken < len(names) and names[taken] in there:
            wanted = list(takewhile(there.__contains__, names[taken : taken + AT_ONCE]))
            pages = list(_whole(wanted, await shelf.read(wanted)))
            if len(pages) < len(wanted):
                await shelf.drop([wanted[len(pages)]])  # kept again once its tokens have been read
            upto = prompt[: (taken + len(pages)) * PAGE]
            if not pages or not await paged.import_pages(sequence, upto, pages):
                break
            taken += len(pages)
            if len(pages) < AT_ONCE:
                break
            await after_pass(0)  # other requests may have their turn
        if taken > first:
            self.page_seconds = _mixed(self.page_seconds, (time.perf_counter() - begin) / (taken - first))

    async def keep(self, sequence: TokenSequence, shelf: PageShelf) -> int:
        """Put the whole pages of a sequence that are missing on a shelf there, while no request waits for the device.
        Returns how many. Changes of the sequence meanwhile have no effect."""
        number, key = sequence.adapter, self._key(sequence.adapter)
        tokens = sequence.tokens[: sequence.stored // PAGE * PAGE]
        paged = self._paged
        if paged is None or not key or not tokens or not sequence.shares or not self.pays:
            return 0
        paged.offer_pages(sequence)
        there, kept = await shelf.names(), 0
        for at, name in enumerate(page_names(key, tokens)):
            if name in there:
                continue
            upto = tokens[: (at + 1) * PAGE]
            export = partial(self._export, paged, number, key, upto)
            data = await self._scheduler.alone(export, Priority.BACKGROUND)
            if data is None or not await shelf.write(name, packed(name, data)):
                break
            kept += 1
        return kept

    async def _export(self, paged: HasPages, number: int, key: str, tokens: Sequence[int]) -> bytes | None:
        if self._key(number) != key:  # another set has the number
            return None
        return await paged.export_page(number, tokens)

    def _key(self, number: int) -> str:
        """The key for everything besides tokens that pages are made from; "" if no pages can be kept."""
        if not self.model or self._paged is None or not self._paged.page_format:
            return ""
        if number not in self._adapters:
            self._adapters[number] = _digest(self._sets[number])
        return "\n".join((self.model, self._paged.page_format, self._adapters[number]))


def _whole(names: Sequence[str], kept: Sequence[bytes]) -> Iterator[bytes]:
    """The pages up to the first that is damaged."""
    for name, data in zip(names, kept, strict=False):
        if (page := unpacked(name, data)) is None:
            return
        yield page


def _digest(adapter: LoraAdapter) -> str:
    digest = hashlib.sha256()
    for name, pair in sorted(adapter.pairs.items()):
        digest.update(f"{name} {pair.a.shape} {pair.b.shape} {pair.scale}".encode())
        digest.update(pair.a.tobytes())
        digest.update(pair.b.tobytes())
    return digest.hexdigest()


def _mixed(known: float, newest: float) -> float:
    return newest if not known else known + (newest - known) * _NEWEST_SHARE
