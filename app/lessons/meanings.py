"""The meanings of lessons, which the gate compares with messages. They are kept, so that lessons are embedded only
once.

They are kept as blobs beside the lesson's record, and deleted with it, in 8 bits a number. The gate sees the same
numbers whether a meaning was made just now or read.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from app.records.lessons import KIND, Lesson
from app.records.memory import Memory
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.learning.gate.features import Taught
from py_core.learning.imprint import quantized
from py_core.routing.embedder import Embedder, Meaning
from py_core.store.blobs import blob_name

TaughtPair = tuple[Taught, Taught]
"""A lesson's question, and its question and answer joined by a space."""
KEPT = 256
"""The number of lessons whose meanings stay in memory: some 50 kB each."""
EMBEDDED_AT_ONCE = 16


class LessonMeanings:
    """The meanings of one memory's lessons, by one embedder."""

    def __init__(self, memory: Memory, embedder: Embedder) -> None:
        self._memory, self._embedder = memory, embedder
        self._known: OrderedDict[str, tuple[str, TaughtPair]] = OrderedDict()  # id -> key of its texts, pair

    async def of(self, lessons: Sequence[Lesson]) -> list[TaughtPair]:
        """Return the meanings of each lesson. What is neither known nor kept is embedded, and kept. Raises
        EmbedderError, StoreError."""
        found = {one.id: pair for one in lessons if (pair := self._look(one)) is not None}
        missing = [one for one in lessons if one.id not in found]
        kept = await self._memory.store.get_blobs([self._blob(one) for one in missing])
        for one in tuple(missing):
            pair = _from_bytes(kept.get(self._blob(one), b""), _texts(one))
            if pair is not None:
                found[one.id] = pair
                missing.remove(one)
        for begin in range(0, len(missing), EMBEDDED_AT_ONCE):
            part = missing[begin : begin + EMBEDDED_AT_ONCE]
            meanings = await self._embedder.meanings([text for one in part for text in _texts(one)])
            for at, one in enumerate(part):
                two = meanings[2 * at : 2 * at + 2]
                data = _to_bytes(two, _texts(one))
                found[one.id] = _from_bytes(data, _texts(one)) or _pair(_texts(one), two)
                if await self._memory.lessons.get(one.id) is not None:  # else nothing of it may be kept
                    await self._memory.store.put_blob(self._blob(one), data)
        for one in lessons:
            self._known[one.id] = _key(_texts(one)), found[one.id]
            self._known.move_to_end(one.id)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return [found[one.id] for one in lessons]

    def forget(self, id: str) -> None:
        """Drop a deleted or changed lesson's meanings from memory."""
        self._known.pop(id, None)

    def clear(self) -> None:
        self._known.clear()

    def _look(self, lesson: Lesson) -> TaughtPair | None:
        known = self._known.get(lesson.id)
        return known[1] if known is not None and known[0] == _key(_texts(lesson)) else None

    def _blob(self, lesson: Lesson) -> str:
        return blob_name(KIND, lesson.id, "meaning", self._embedder.meaning_fingerprint)


def _texts(lesson: Lesson) -> tuple[str, str]:
    return lesson.question, f"{lesson.question} {lesson.answer}"


def _key(texts: tuple[str, str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _pair(texts: tuple[str, str], meanings: Sequence[Meaning]) -> TaughtPair:
    return (texts[0], meanings[0]), (texts[1], meanings[1])


def _to_bytes(meanings: Sequence[Meaning], texts: tuple[str, str]) -> bytes:
    arrays = dict[str, np.ndarray]()
    for name, meaning in zip(("question", "both"), meanings, strict=True):
        codes, scales = quantized(meaning.states)
        arrays |= {f"{name}.ids": meaning.ids.astype(np.int32), f"{name}.vector": meaning.vector}
        arrays |= {f"{name}.codes": codes, f"{name}.scales": scales}
    return write_safetensors(arrays, {"made_of": _key(texts)})


def _from_bytes(data: bytes, texts: tuple[str, str]) -> TaughtPair | None:
    """Return None if the data is damaged, or of other texts."""
    try:
        arrays, told = read_safetensors(data)
        if told["made_of"] != _key(texts):
            return None
        question, both = (
            Meaning(
                arrays[f"{name}.ids"],
                arrays[f"{name}.codes"] * arrays[f"{name}.scales"],
                arrays[f"{name}.vector"].astype(np.float32),
            )
            for name in ("question", "both")
        )
        return _pair(texts, (question, both))
    except (SafetensorsError, KeyError, ValueError):
        return None
