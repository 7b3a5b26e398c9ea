"""The files of conversations: attached, indexed in the background, and found for a question.

A file's passages get their vectors in steps between answers (memory/background.py). Until all have one, questions are
answered by their words. app/files/material.py puts the found passages into the prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from typing import TYPE_CHECKING

import numpy as np

from app.files.material import NOTHING_BY_WORDS, Material, passages_text, whole_text, without_page_breaks
from app.files.text import FileError, shown_name, text_of
from app.protocol import Citation
from app.records.files import KIND, Passage, StoredFile
from app.records.memory import Memory
from app.stage import Stage, State
from py_core.passages.chunks import MOST_CHUNKS, Chunk, each_chunk, kind_of, place_of_all
from py_core.passages.search import Found, PassageIndex
from py_core.routing.embedder import Embedder, EmbedderError
from py_core.store.errors import StoreError
from py_core.store.rows import Change
from py_core.text_search import fold

if TYPE_CHECKING:
    from app.files.views import AttachedFile
    from py_core.tools.table import Table

MOST_FILES = 20
"""Most files of a conversation."""
MOST_PASSAGES = 8
"""Most passages of a prompt. More cost a small model more than they help (docs/decisions/0066)."""
NEAR_THE_BEST = 0.7
"""A passage with less than this share of the best score is left out."""
TOGETHER = 8  # passages whose vectors are stored in one transaction
SHARE = 0.75
"""The share of the time for indexing while no answer runs: the user waits for it."""
KEPT_OPEN = 4  # conversations whose passages are kept in memory
SLICE = 0.02
"""Seconds of cutting at a time: in between other tasks run, and Ctrl-C is noticed."""
MOST_SECONDS = 60.0
"""Most seconds for cutting an attached file. It would take as long each time its conversation is opened."""
_WHOLE_WORDS = ("file", "document", "summar", "datei", "dokument", "zusammenfass", "fasse")
"""Patterns of a message about the file as a whole, for which no single passage is relevant."""

CountTokens = Callable[[str], int]


@dataclass
class _OpenFile:
    stored: StoredFile
    chunks: list[Chunk]
    first: int
    """The number of its first passage among all of the conversation."""

    @cached_property
    def table(self) -> Table | None:
        """None if it is not a table, or could be read in two ways."""
        if kind_of(self.stored.name) != "table":
            return None
        from py_core.tools.table import read_table  # not before it is needed

        return read_table(self.stored.name, self.stored.text)


@dataclass
class _Open:
    """The files of a conversation, cut into passages, and their search indexes."""

    files: list[_OpenFile]
    index: PassageIndex
    texts: list[str] = field(repr=False)

    def __bool__(self) -> bool:
        return bool(self.files)

    def of(self, number: int) -> tuple[_OpenFile, Chunk]:
        file = next(file for file in reversed(self.files) if file.first <= number)
        return file, file.chunks[number - file.first]


class FileService:
    """The files of all conversations over one memory."""

    def __init__(
        self, memory: Callable[[], Memory], embedder: Callable[[], Embedder | None], routing: Stage,
        trouble: Callable[[Exception], None], changed: Callable[[], None],
    ) -> None:  # fmt: skip
        """memory: raises StoreError before it is open. embedder: None before `routing` is ready, or if it failed.
        trouble, changed: called when indexing failed, or continued."""
        self._memory_now, self._embedder, self._routing = memory, embedder, routing
        self._trouble, self._changed = trouble, changed
        self._opened: OrderedDict[str, _Open] = OrderedDict()
        self._memory: Memory | None = None
        self._waiting: dict[str, None] = {}  # conversations to index
        self._works = False
        self._opening = asyncio.Lock()
        self._changes = 0  # of files, in all conversations
        self._failed: Embedder | None = None  # indexes no more

    async def attach(
        self, session: str | None, name: str, type: str, data: bytes, size: int | None = None
    ) -> StoredFile:
        """Store a file of a conversation; None: of a new one, which is started with the file's name as its title.

        data, type: as of file_text.text_of. size: bytes of the file, if they differ from data's. A file that is
        attached twice is stored once. Nothing is stored of a file that cannot be cut. Raises FileError with a sentence
        about the problem, StoreError.
        """
        memory = self._memory_now()
        text = text_of(name, data, type)
        await _check_cutting(shown_name(name), text)
        file = StoredFile(
            session or "",
            shown_name(name),
            type[:100] if type.isprintable() else "",
            len(data) if size is None else size,
            text,
        )
        if session is None:
            session = (await memory.sessions.start(file.name)).id
        elif await memory.sessions.get(session) is None:
            raise StoreError("record", "chat.deleted-start-new", "This conversation was deleted. Start a new one.")
        there = await memory.files.of(session)
        for one in there:
            if (one.name, one.text) == (file.name, text):
                return one
        if len(there) >= MOST_FILES:
            raise FileError(
                "files.too-many",
                "A conversation may have {most} files. Remove one, or start a new conversation.",
                most=MOST_FILES,
            )
        kept = await memory.files.keep(StoredFile(session, file.name, file.type, file.size, text))
        await self._open(session)
        self._failed = None
        self._index_soon(session)
        return kept

    async def files(self, session: str) -> list[AttachedFile]:
        """The files of a conversation, as plain data."""
        opened = await self._open(session)
        if not opened.index.is_complete:
            self._index_soon(session)
        embedder, can_come = self._embedder(), self._routing.state in (State.OPENING, State.READY)
        told: list[AttachedFile] = []
        for file in opened.files:
            stored, passages = file.stored, len(file.chunks)
            indexed = sum(opened.index.has_vector(file.first + number) for number in range(passages))
            comes = indexed < passages and (can_come if embedder is None else embedder is not self._failed)
            told.append({
                "id": stored.id, "name": stored.name, "type": stored.type, "size": stored.size,
                "passages": passages, "indexed": indexed, "comes": comes,
            })  # fmt: skip
        return told

    async def detach(self, *ids: str) -> None:
        """Delete files. A conversation without messages and files is deleted, too."""
        memory = self._memory_now()
        await memory.files.delete(*ids)
        for session in {id.rpartition("/")[0] for id in ids}:
            known = await memory.sessions.get(session)
            if known is not None and not known.turns and not await memory.files.of(session):
                await memory.sessions.delete(session)

    async def text(self, id: str) -> str:
        """The text of a file. Raises StoreError if it was deleted."""
        file = await self._memory_now().files.get(id)
        if file is None:
            raise StoreError("record", "files.removed", "This file was removed.")
        return without_page_breaks(file.text)

    async def tables(self, session: str) -> list[Table]:
        """A conversation's files that are tables, indexed or not. Raises StoreError."""
        return [file.table for file in (await self._open(session)).files if file.table is not None]

    async def table(self, id: str) -> Table | None:
        """A file as a table; None if it is none, or was deleted. Raises StoreError."""
        opened = await self._open(id.rpartition("/")[0])
        return next((file.table for file in opened.files if file.stored.id == id), None)

    async def indexed(self, session: str) -> None:
        """Returns once every passage of a conversation's files has a vector, or there is no embedder."""
        await self._open(session)
        self._index_soon(session)
        if self._memory is not None:
            await self._memory.background.settled()

    async def material(
        self, session: str, question: str, before: str, count: CountTokens, room: int, whole_room: int | None = None
    ) -> Material | None:
        """The part of a conversation's files that the model reads for a question; None if nothing is relevant. If only
        words were searched, and none found, the result is a Material without a passage, which says so.

        before: the previous question, for a follow-up ("And why?"). count: counts tokens; room: the most tokens;
        whole_room: the most for whole files, if the question is not about them as a whole. Raises StoreError.
        """
        opened = await self._open(session)
        if not opened:
            return None
        whole = _whole(opened, count, room)
        if whole is not None and whole.tokens <= (room if whole_room is None else whole_room):
            return whole
        found, by_words = await self._find(opened, question, before)
        if not found and _is_about_files(question, opened):
            if whole is not None:
                return whole
            found = [Found(number, 0.0) for number in range(min(MOST_PASSAGES, len(opened.index)))]
        material = _passages(opened, found, by_words, count, room)
        return NOTHING_BY_WORDS if material is None and by_words else material

    async def _find(self, opened: _Open, question: str, before: str) -> tuple[list[Found], bool]:
        by_words = not opened.index.is_complete
        asked = [question] + ([f"{before}\n{question}"] if before and "?" in question else [])
        for text in asked:
            vector: np.ndarray | None = None
            embedder = self._embedder()
            if not by_words and embedder is not None:
                try:
                    vector = (await embedder.meanings([text]))[0].vector
                except EmbedderError as error:
                    self._trouble(error)
            by_words = vector is None
            found = opened.index.search(text, vector)
            if found:
                best = found[0].score
                return [one for one in found if one.score >= NEAR_THE_BEST * best][:MOST_PASSAGES], by_words
        return [], by_words

    # ---- open conversations ----

    async def _open(self, session: str) -> _Open:
        memory = self._memory_now()
        if self._memory is None:
            self._memory = memory
            memory.store.on_change(self._on_change)
        async with self._opening:
            while session not in self._opened:
                changes, opened = self._changes, await self._read(session, memory)
                if changes == self._changes:
                    self._opened[session] = opened
            self._opened.move_to_end(session)
            while len(self._opened) > KEPT_OPEN:
                self._opened.popitem(last=False)
            return self._opened[session]

    async def _read(self, session: str, memory: Memory) -> _Open:
        opened = _Open([], PassageIndex(), [])
        for one in await memory.files.of(session):
            file = _OpenFile(one, [], len(opened.texts))
            async for chunk in _cut(one.text, one.name):
                file.chunks.append(chunk)
                opened.texts.append(f"{one.name}, {chunk.place}\n{chunk.text(one.text)}")
                opened.index.add(opened.texts[-1])
            opened.files.append(file)
        embedder = self._embedder()
        for file in opened.files:
            await self._take_vectors(opened, file, embedder.meaning_fingerprint if embedder else None, memory)
        return opened

    async def _take_vectors(self, opened: _Open, file: _OpenFile, made_by: str | None, memory: Memory) -> None:
        """Stored vectors of passages that are still cut the same way, made by the current embedder."""
        for number, passage in (await memory.files.passages(file.stored.id)).items():
            fits = number < len(file.chunks) and file.chunks[number][:2] == (passage.start, passage.end)
            if fits and made_by in (None, passage.made_by):
                opened.index.put(file.first + number, passage.vector)

    def _on_change(self, change: Change) -> None:
        if change.everything or change.cleared is not None:
            self._changes += 1
            self._opened.clear()
        for kind, id in (*change.puts, *change.deletes):
            if kind == KIND:
                self._changes += 1
                self._opened.pop(id.rpartition("/")[0], None)

    # ---- indexing ----

    def _index_soon(self, session: str) -> None:
        if self._memory is None or (embedder := self._embedder()) is None or embedder is self._failed:
            return
        self._waiting[session] = None
        if not self._works:
            self._works = True
            self._memory.background.start(self._index)

    async def _index(self) -> None:
        try:
            while self._waiting:
                session = next(iter(self._waiting))
                if not await self._index_some(session):
                    self._waiting.pop(session, None)
        except (EmbedderError, StoreError) as error:
            self._waiting.clear()
            self._failed = self._embedder()  # otherwise it would fail repeatedly
            self._trouble(error)
        finally:
            self._works = False

    async def _index_some(self, session: str) -> bool:
        """Index a few passages of a conversation. False: there is nothing left to do."""
        opened, memory, embedder = await self._open(session), self._memory, self._embedder()
        lacking = opened.index.lacking()[:TOGETHER]
        if not lacking or embedder is None or memory is None:
            return False
        made = list[tuple[int, np.ndarray]]()
        for number in lacking:
            async with memory.background.step(SHARE):
                (meaning,) = await embedder.meanings([opened.texts[number]])
            made.append((number, meaning.vector))
        for id, numbers in groupby(made, lambda one: opened.of(one[0])[0].stored.id):
            file = next(file for file in opened.files if file.stored.id == id)
            passages = [
                (number - file.first, _passage(file.chunks[number - file.first], embedder.meaning_fingerprint, vector))
                for number, vector in numbers
            ]
            if not await _kept(memory, file.stored, passages):
                return session in self._opened  # the file is gone: check the remaining ones again
        for number, vector in made:
            opened.index.put(number, vector)
        self._changed()
        return True


async def _cut(text: str, name: str, most: int = MOST_CHUNKS) -> AsyncIterator[Chunk]:
    """Cut the first passages of a file; other tasks run in between."""
    until = time.perf_counter() + SLICE
    for chunk in islice(each_chunk(text, kind_of(name)), most):
        yield chunk
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE


async def _check_cutting(name: str, text: str) -> None:
    """Raises FileError."""
    try:
        async with asyncio.timeout(MOST_SECONDS):
            count = sum([1 async for _ in _cut(text, name, MOST_CHUNKS + 1)])
    except TimeoutError:
        raise FileError(
            "files.slow-to-cut", "{name} takes too long to cut into passages. Attach a part of it.", name=name
        ) from None
    if count > MOST_CHUNKS:
        raise FileError(
            "files.too-many-passages",
            "{name} has too many small parts (pages, headings or rows): a file may have {most} passages. Attach a "
            "part of it.",
            name=name,
            most=f"{MOST_CHUNKS:,}",
        )


async def _kept(memory: Memory, file: StoredFile, passages: Sequence[tuple[int, Passage]]) -> bool:
    try:
        return await memory.files.keep_passages(file, passages)
    except StoreError as error:
        if error.reason != "conflict":
            raise
        return False


def _passage(chunk: Chunk, made_by: str, vector: np.ndarray) -> Passage:
    return Passage(chunk.start, chunk.end, chunk.place, made_by, vector)


def _whole(opened: _Open, count: CountTokens, room: int) -> Material | None:
    files = [file.stored for file in opened.files]
    if sum(len(file.text.encode()) for file in files) > 16 * room:
        return None  # no tokenizer could make it fit, and counting takes long
    text = "\n\n".join(whole_text(file.name, file.text) for file in files)
    if (tokens := count(text)) > room:
        return None
    cited = tuple(Citation(file.id, file.name, place_of_all(file.text, kind_of(file.name))) for file in files)
    return Material(text, tokens, cited, is_whole=True)


def _is_about_files(question: str, opened: _Open) -> bool:
    folded = fold(question)
    return any(word in folded for word in (*_WHOLE_WORDS, *(fold(file.stored.name) for file in opened.files)))


def _passages(opened: _Open, found: Sequence[Found], by_words: bool, count: CountTokens, room: int) -> Material | None:
    """The best passages that fit, in the order of their files."""
    material: Material | None = None
    for most in range(1, len(found) + 1):
        chosen = sorted(one.number for one in found[:most])
        text = _text_of(opened, chosen)
        if (tokens := count(text)) > room:
            break
        cited = []
        for number in chosen:
            file, chunk = opened.of(number)
            said = chunk.text(file.stored.text).strip()
            cited.append(Citation(file.stored.id, file.stored.name, chunk.place, said))
        material = Material(text, tokens, tuple(cited), is_whole=False, by_words=by_words)
    return material


def _text_of(opened: _Open, numbers: Sequence[int]) -> str:
    """Overlapping passages are merged, so that no text appears twice."""
    parts = []
    for id, of_file in groupby(numbers, lambda number: opened.of(number)[0].stored.id):
        file = next(file for file in opened.files if file.stored.id == id)
        spans = list[tuple[str, int, int, str]]()  # place, start, end, head
        for number in of_file:
            chunk = file.chunks[number - file.first]
            if spans and chunk.start <= spans[-1][2] and not chunk.head:
                place, start, _, head = spans.pop()
                spans.append((place if place == chunk.place else f"{place}, {chunk.place}", start, chunk.end, head))
            else:
                spans.append((chunk.place, chunk.start, chunk.end, chunk.head))
        passages = [f"({place})\n{head}{file.stored.text[start:end].strip()}" for place, start, end, head in spans]
        parts.append(passages_text(file.stored.name, passages))
    return "\n\n".join(parts)
