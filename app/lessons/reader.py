"""Lets the model read lessons if the gate is not sure that a lesson answers a message, with an adapter made for that.

The adapter (app/training/reader.py) belongs to the model that Sonata ships. Other models have no reader, and read
nothing. The page does not load it at the start. It is fetched once there is a lesson, so that it also works offline,
and opened at its first use. If it cannot be fetched, an answer comes without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from app.generation.assistant import Assistant
from app.generation.stop_token import StopToken
from app.lessons.match import Candidate, LessonMatch, UnsureMatch
from app.records.memory import Memory
from py_core.adapters.files import read_adapter
from py_core.adapters.lora import AdapterError, LoraAdapter, check_base
from py_core.backend_errors import ContextFullError
from py_core.learning.reading import MOST_FACTS
from py_core.loading import Model

READERS = frozenset({"b179c9523d0e6a0f"})
"""The models with a reader, by the first digits of their files' sha256."""
LEAST_CONFIDENCE = 0.1
"""If the best lesson's confidence is below it, nothing is read."""
WORTH_READING = 0.025
"""The second and the third lesson are read if their confidence is at least this."""
LONGEST_FACT = 400
"""Characters of question and answer. The reader was trained on facts of one sentence; longer facts are not copied
well."""
PATIENCE = 2.0
"""Seconds that an answer waits for the adapter to be fetched; the fetching continues."""

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns a file of the folder `readers` by its name; may raise anything."""


def reader_name(base_sha256: str) -> str:
    return f"{base_sha256[:16]}.safetensors"


def reader_path(base_sha256: str) -> Path:
    """Return the path of a model's reader in the repository."""
    return Path(__file__).parent / "readers" / reader_name(base_sha256)


async def fetch_natively(name: str) -> bytes:
    return await asyncio.to_thread(reader_path(name).read_bytes)


class FactReader:
    """The reader of one model."""

    def __init__(self, model: Model, base_sha256: str, fetch: Fetch = fetch_natively) -> None:
        self._model, self._base, self._fetch = model, base_sha256, fetch
        self._fetching: asyncio.Task[bytes] | None = None
        self._adapter: LoraAdapter | None = None
        self._is_kept = False
        self.is_there = base_sha256[:16] in READERS
        """True if this model has a reader."""

    @property
    def adapter(self) -> LoraAdapter | None:
        """Return the opened adapter; None before the first reading."""
        return self._adapter

    def keep(self) -> None:
        """Fetch the adapter, so that it is there later; waits for nothing. It is fetched once, unless that fails."""
        if self.is_there and not self._is_kept:
            self._fetch_it()

    def _fetch_it(self) -> asyncio.Task[bytes]:
        if self._fetching is None:

            async def fetch() -> bytes:
                return await self._fetch(reader_name(self._base))

            self._fetching = asyncio.create_task(fetch())
            self._fetching.add_done_callback(self._note)
        return self._fetching

    def _note(self, fetching: asyncio.Task[bytes]) -> None:
        self._fetching = None
        self._is_kept = not fetching.cancelled() and fetching.exception() is None

    async def unsure(self, considered: Sequence[Candidate], begin: float) -> UnsureMatch | None:
        """Return the lessons that the model can read, if the gate opened for none of those compared with a message.
        considered: the compared lessons, the best first. None if nothing is worth reading, or the adapter is not there.
        begin: when the comparison began."""
        short = [one for one in considered if len(one.lesson.question) + len(one.lesson.answer) <= LONGEST_FACT]
        facts = [one for one in short if one.confidence >= WORTH_READING][:MOST_FACTS]
        if not facts or facts[0].confidence < LEAST_CONFIDENCE or (reader := await self._opened()) is None:
            return None
        return UnsureMatch(tuple(facts), reader, tuple(considered), 1000 * (time.perf_counter() - begin))

    async def _opened(self) -> LoraAdapter | None:
        if self._adapter is None and self.is_there:
            try:
                data = await asyncio.wait_for(asyncio.shield(self._fetch_it()), PATIENCE)
                adapter = read_adapter(data, self._model.config, self._model.graph)
                check_base(adapter, self._base)
                self._adapter = adapter
            except AdapterError:
                self.is_there = False  # the site's file is damaged: it stays damaged until the page is loaded again
            except Exception:  # offline, or a slow server: hosts raise different errors
                return None
        return self._adapter


async def read_facts(
    assistant: Assistant, memory: Memory, text: str, unsure: UnsureMatch, stop: StopToken | None = None
) -> LessonMatch | None:
    """Let the model read the facts, and answer a message from them. Returns None if it gives no fact's answer, or that
    lesson was forgotten meanwhile. Raises BackendError, StoreError."""
    try:
        found = await assistant.read(text, unsure.texts, unsure.reader, stop)
    except ContextFullError:  # the message with the facts is too long
        return None
    if found is None:
        return None
    recalled = unsure.match(*found)
    lesson = await memory.lessons.get(recalled.lesson.id)
    return recalled if lesson is not None and lesson.answers else None
