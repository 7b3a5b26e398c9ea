"""The imprints of lessons for one model: made, kept beside the lesson's record, and brought to the device."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from app.generation.learned_answer import AnswerHead
from app.generation.prompt_window import refuse_by_length
from app.lessons.imprint_shelf import KEPT_SLOTS, ImprintShelf
from py_core.adapters.lora import AdapterError
from py_core.backends.base import ContextFullError, TokenSequence
from py_core.engine.scheduler import Priority
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.learning.imprint import PART, Imprint, ImprintError
from py_core.learning.instant import LessonTokens, learn_directions, lesson_tokens, make_imprint
from py_core.loading import Model
from py_core.memory.blobs import blob_name
from py_core.memory.lessons import KIND, Lesson
from py_core.memory.memory import Memory
from py_core.messages import UserError
from py_core.tokenizers.chat_template import ChatTemplateError

GENERIC_TEXTS = Path(__file__).with_name("generic_texts.txt")
"""A message a line: what directions are made of."""
VERSION = "1"
"""Of how imprints are made: those of another version are made again."""
ROOM = 64
"""Tokens of the context that are left beside a lesson: a conversation has more in it than the lesson."""
LONGEST_ANSWER = min(KEPT_SLOTS * PART, 1000)
"""Tokens. The device has room for no more parts, and a chat's answer ends soon after."""


AdapterNumber = Callable[[], Awaitable[int]]
"""Brings a set of matrices to the device (ResidentAdapters.number); its number, which may be another one later."""


Reading = Callable[[int, int], None]
"""Called with how many texts the model has read, and how many there are."""


def _unheard(read: int, texts: int) -> None:
    """Nobody listens."""


class LessonError(UserError, ValueError):
    """This cannot be taught; the message says why, and what to do."""


class LessonImprints:
    """Imprints belong to a model (`base_sha256`) and a revision of its learned adapter; 0 is the plain model."""

    def __init__(self, model: Model, base_sha256: str, system: str) -> None:
        """system: the prompt that conversations begin with."""
        self.revision = 0
        self._adapter: AdapterNumber | None = None
        self._model, self._base, self._system = model, base_sha256, system
        self._shelf = ImprintShelf(model.engine)
        self._known: dict[str, Imprint] = {}
        """Of lessons whose imprints are on the shelf, or were."""
        self._kept_reader: TokenSequence | None = None
        self._clears = 0
        self._directions: np.ndarray | None = None
        self._on_reading: Reading = _unheard
        self._making = asyncio.Lock()
        self._directions_blob = f"directions/{base_sha256[:16]}"

    async def tokens(self, lesson: Lesson) -> LessonTokens:
        """Raises LessonError where the model cannot learn it."""
        longest = self._model.engine.context_length - ROOM
        try:
            for text in (lesson.question, lesson.answer):
                refuse_by_length(self._model, text, longest)
        except ContextFullError as error:
            raise LessonError("lessons.too-long-because", "This is too long to learn: {why}", why=error) from None
        try:
            tokens = await lesson_tokens(self._model, self._system, lesson.question, lesson.answer)
        except ChatTemplateError as error:
            raise LessonError("lessons.not-teachable", "This model cannot be taught: {why}", why=error) from None
        if tokens.longest > longest:
            raise LessonError(
                "lessons.too-long",
                "Question and answer are {length} tokens long; this model can learn {most}. Shorten them.",
                length=f"{tokens.longest:,}",
                most=f"{longest:,}",
            )
        if len(tokens.answer) > LONGEST_ANSWER:
            raise LessonError(
                "lessons.long-answer",
                "The answer is {length} tokens long; {most} can be learned. Shorten it, or "
                "teach it in several lessons.",
                length=f"{len(tokens.answer):,}",
                most=f"{LONGEST_ANSWER:,}",
            )
        return tokens

    async def make(
        self, memory: Memory, lesson: Lesson, tokens: LessonTokens, priority: Priority = Priority.INTERACTIVE
    ) -> Imprint:
        """Make a lesson's imprint, and keep it. Raises BackendError, StoreError."""
        revision, adapter = self.revision, await self.adapter()
        directions = await self.directions(memory, priority)
        async with self._reader(adapter, tokens) as sequence:
            imprint = await make_imprint(
                self._model, sequence, tokens, directions, made_of=_made_of(lesson), priority=priority
            )
        if await memory.lessons.get(lesson.id) is not None:  # else nothing of it may be kept
            await memory.store.put_blob(self._blob(lesson, revision), imprint.to_bytes())
        if revision == self.revision:
            self._known[lesson.id] = imprint
        return imprint

    async def kept(self, memory: Memory, lesson: Lesson) -> Imprint | None:
        """The imprint of the lesson as it is now; None where there is none yet. Raises StoreError."""
        made_of = _made_of(lesson)
        known = self._known.get(lesson.id)
        if known is not None and known.made_of == made_of:
            return known
        data = await memory.store.get_blob(self._blob(lesson, self.revision))
        try:
            imprint = Imprint.from_bytes(data or b"")
        except ImprintError:
            return None  # it can be made again
        fits = imprint.made_of == made_of and imprint.codes.shape[-1] == self._model.graph.head_input.width
        return imprint if fits else None

    async def heads(self, memory: Memory, lesson: Lesson) -> tuple[AnswerHead, ...]:
        """The lesson's imprint on the device, made where it is missing.

        Raises LessonError, BackendError, StoreError.
        """
        imprint, heads = await self.kept(memory, lesson), None
        if imprint is not None:
            with contextlib.suppress(AdapterError):  # what is kept is damaged: it can be made again
                heads = await self._shelf.heads(lesson.id, imprint)
        if imprint is None or heads is None:
            imprint = await self.make(memory, lesson, await self.tokens(lesson))
            heads = await self._shelf.heads(lesson.id, imprint)
        self._known = {id: one for id, one in self._known.items() if id in self._shelf} | {lesson.id: imprint}
        return heads

    def use_revision(self, revision: int, adapter: AdapterNumber | None) -> None:
        """From now on make and give the imprints of another revision: `adapter` gives the number of its matrices."""
        self.clear()
        self.revision, self._adapter = revision, adapter

    async def adapter(self) -> int:
        """The number of the revision's matrices, 0 for the plain model. Raises BackendError."""
        return await self._adapter() if self._adapter else 0

    def forget(self, id: str) -> None:
        """A lesson is gone: its imprint leaves the device, at once."""
        self._known.pop(id, None)
        self._shelf.forget(id)

    def clear(self) -> None:
        """Take everything from the device."""
        self._known.clear()
        self._shelf.clear()
        self._clears += 1
        if self._kept_reader is not None:
            self._model.engine.free(self._kept_reader)
            self._kept_reader = None

    @contextlib.contextmanager
    def telling(self, on_reading: Reading) -> Iterator[None]:
        """Meanwhile tell how far a model is that reads what directions are made of: before its first imprint."""
        before, self._on_reading = self._on_reading, on_reading
        try:
            yield
        finally:
            self._on_reading = before

    async def is_prepared(self, memory: Memory) -> bool:
        """Whether `directions` are there, or kept: then an imprint takes a moment. Raises StoreError."""
        if self._directions is None and not self._making.locked():
            data = await self._kept_directions(memory)
            self._directions = _read(data, self._model.graph.head_input.width)
        return self._directions is not None

    async def _kept_directions(self, memory: Memory) -> bytes | None:
        shipped = shipped_path(self._base)
        return shipped.read_bytes() if shipped.is_file() else await memory.store.get_blob(self._directions_blob)

    async def directions(self, memory: Memory, priority: Priority = Priority.BACKGROUND) -> np.ndarray:
        """Of this model: shipped with Sonata, or kept, or made now and kept. All revisions have the same ones."""
        async with self._making:
            if self._directions is None:
                data = await self._kept_directions(memory)
                self._directions = _read(data, self._model.graph.head_input.width)
            if self._directions is None:
                texts = GENERIC_TEXTS.read_text("utf-8").splitlines()
                self._directions = await learn_directions(self._model, self._system, texts, priority, self._on_reading)
                await memory.store.put_blob(self._directions_blob, write_safetensors({"directions": self._directions}))
            return self._directions

    @asynccontextmanager
    async def _reader(self, adapter: int, tokens: LessonTokens) -> AsyncIterator[TokenSequence]:
        """A sequence to read a lesson in. What all lessons begin with stays in it: the next one does not read it again.

        While it is in use a second lesson gets another one, so that nobody waits for what is learned in idle time.
        """
        engine, clears = self._model.engine, self._clears
        sequence, self._kept_reader = self._kept_reader or engine.new_sequence(), None
        is_read = False
        try:
            engine.use_adapter(sequence, adapter)
            yield sequence
            is_read = True
        finally:
            if is_read and self._kept_reader is None and clears == self._clears:
                engine.truncate(sequence, tokens.common)
                self._kept_reader = sequence
            else:
                engine.free(sequence)

    def _blob(self, lesson: Lesson, revision: int) -> str:
        return blob_name(KIND, lesson.id, "imprint", self._base[:16], str(revision))


def shipped_path(base_sha256: str) -> Path:
    """The file of a model's directions, where they come with Sonata (app/training/shipped_directions.py)."""
    return Path(__file__).parent / "directions" / f"{base_sha256[:16]}.safetensors"


def _made_of(lesson: Lesson) -> str:
    told = "\0".join((VERSION, lesson.question, lesson.answer))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def _read(data: bytes | None, width: int) -> np.ndarray | None:
    try:
        directions = read_safetensors(data)[0]["directions"] if data else None
    except (SafetensorsError, KeyError):
        return None
    return directions.astype(np.float32) if directions is not None and directions.shape[1:] == (width,) else None
