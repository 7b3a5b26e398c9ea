"""Finds the lesson with which a message is answered."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from app.generation.assistant import Assistant
from app.generation.stop_token import StopToken
from app.lessons.imprints import LessonError
from app.lessons.match import LessonMatch, UnsureMatch
from app.lessons.reader import read_facts
from py_core.backend_errors import BackendError
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime


def paused(runtime: Runtime) -> AbstractContextManager[None]:
    """While it is open, background work pauses."""
    memory = runtime.memory_if_open
    return memory.background.paused() if memory is not None else nullcontext()


async def recall(runtime: Runtime, assistant: Assistant, text: str, stop: StopToken) -> LessonMatch | None:
    """Return the lesson that answers a message, also if the model has to read some lessons for that. Never fails:
    errors go to the runtime."""
    learning = runtime.learning
    try:
        if runtime.consolidation is not None:
            await runtime.consolidation.refresh()  # what it learned from may be deleted
        if learning is None:
            return None
        found = await learning.recall_or_read(text)
        if not isinstance(found, UnsureMatch):
            return found
        with paused(runtime):
            return await read_facts(assistant, learning.memory, text, found, stop)
    except (EmbedderError, StoreError, BackendError, LessonError) as error:
        runtime.trouble(error)
        return None
