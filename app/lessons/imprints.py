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
from app.records.lessons import KIND, Lesson
from app.records.memory import Memory
from py_core.adapters.lora import AdapterError
from py_core.backend_errors import ContextFullError
from py_core.engine.scheduler import Priority
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.learning.imprint import PART, Imprint, ImprintError
from py_core.learning.imprint_maker import LessonTokens, learn_directions, lesson_tokens, make_imprint
from py_core.loading import Model
from py_core.messages import UserError
from py_core.store.blobs import blob_name
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import ChatTemplateError

GENERIC_TEXTS = Path(__file__).with_name("generic_texts.txt")
"""The texts from which directions are made, one message a line."""
VERSION = "1"
"""The version of the way imprints are made. Imprints of another version are made again."""
ROOM = 64
"""Tokens of the context that stay free beside a lesson: a conversation has more in it than the lesson."""
LONGEST_ANSWER = min(KEPT_SLOTS * PART, 1000)
"""Tokens. The device has no room for more parts, and a chat's answer ends soon after."""


AdapterNumber = Callable[[], Awaitable[int]]
"""Brings a set of matrices to the device (ResidentAdapters.number) and returns its number, which may change later."""


Reading = Callable[[int, int], None]
"""Called with the number of texts that the model has read, and the number of all texts."""


def _unheard(read: int, texts: int) -> None:
    """Ignore the progress."""


class LessonError(UserError, ValueError):
    """The lesson cannot be taught; the message says why, and what to do."""


class LessonImprints:
    """Imprints belong to a model (`base_sha256`) and a revision of its learned adapter; 0 is the plain model."""

    def __init__(self, model: Model, base_sha256: str, system: str) -> None:
        """system: the prompt with which conversations begin."""
        self.revision = 0
        self._adapter: AdapterNumber | None = None
        self._model, self._base, self._system = model, base_sha256, system
        self._shelf = ImprintShelf(model.engine)
        self._known: dict[str, Imprint] = {}
        """The imprints of lessons that are, or were, on the shelf."""
        self._kept_reader: TokenSequence | None = None
        self._clears = 0
        self._directions: np.ndarray | None = None
        self._on_reading: Reading = _unheard
        self._making = asyncio.Lock()
        self._directions_blob = f"directions/{base_sha256[:16]}"

    async def tokens(self, lesson: Lesson) -> LessonTokens:
        """Return the lesson's tokens. Raises LessonError if the model cannot learn it."""
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
                "Question and answer are {length} tokens long; this model can learn at most {most}. Shorten them.",
                length=f"{tokens.longest:,}",
                most=f"{longest:,}",
            )
        if len(tokens.answer) > LONGEST_ANSWER:
            raise LessonError(
                "lessons.long-answer",
                "The answer is {length} tokens long; at most {most} can be learned. Shorten it, or teach it in "
                "several lessons.",
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
        """Return the imprint of the lesson as it is now; None if there is none yet. Raises StoreError."""
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
        """Return the lesson's imprint on the device. It is made if it is missing.

        Raises LessonError, BackendError, StoreError.
        """
        imprint, heads = await self.kept(memory, lesson), None
        if imprint is not None:
            with contextlib.suppress(AdapterError):  # the kept imprint is damaged: it can be made again
                heads = await self._shelf.heads(lesson.id, imprint)
        if imprint is None or heads is None:
            imprint = await self.make(memory, lesson, await self.tokens(lesson))
            heads = await self._shelf.heads(lesson.id, imprint)
        self._known = {id: one for id, one in self._known.items() if id in self._shelf} | {lesson.id: imprint}
        return heads

    def use_revision(self, revision: int, adapter: AdapterNumber | None) -> None:
        """From now on make and use the imprints of another revision: `adapter` returns the number of its matrices."""
        self.clear()
        self.revision, self._adapter = revision, adapter

    async def adapter(self) -> int:
        """Return the number of the revision's matrices, 0 for the plain model. Raises BackendError."""
        return await self._adapter() if self._adapter else 0

    def forget(self, id: str) -> None:
        """Remove the imprint of a deleted lesson from the device, at once."""
        self._known.pop(id, None)
        self._shelf.forget(id)

    def clear(self) -> None:
        """Remove everything from the device."""
        self._known.clear()
        self._shelf.clear()
        self._clears += 1
        if self._kept_reader is not None:
            self._model.engine.free(self._kept_reader)
            self._kept_reader = None

    @contextlib.contextmanager
    def telling(self, on_reading: Reading) -> Iterator[None]:
        """While it is open, report how far the model has read the texts for directions, before its first imprint."""
        before, self._on_reading = self._on_reading, on_reading
        try:
            yield
        finally:
            self._on_reading = before

    async def is_prepared(self, memory: Memory) -> bool:
        """True if `directions` are known or kept: then an imprint takes a moment. Raises StoreError."""
        if self._directions is None and not self._making.locked():
            data = await self._kept_directions(memory)
            self._directions = _read(data, self._model.graph.head_input.width)
        return self._directions is not None

    async def _kept_directions(self, memory: Memory) -> bytes | None:
        shipped = shipped_path(self._base)
        return shipped.read_bytes() if shipped.is_file() else await memory.store.get_blob(self._directions_blob)

    async def directions(self, memory: Memory, priority: Priority = Priority.BACKGROUND) -> np.ndarray:
        """Return this model's directions: shipped with Sonata, or kept, or made now and kept. All revisions have the
        same ones."""
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
        """Yield a sequence to read a lesson in. The beginning that all lessons share stays in it: the next lesson does
        not read it again.

        While it is in use a second lesson gets another sequence, so that nothing waits for learning in idle time.
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
    """Return the file of a model's directions, if they come with Sonata (app/training/shipped_directions.py)."""
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
