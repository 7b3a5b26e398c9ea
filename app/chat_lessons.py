"""What a message is answered with because it was taught."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from app.assistant import Assistant
from app.fact_reader import read_facts
from app.lesson_imprints import LessonError
from app.lesson_match import LessonMatch, UnsureMatch
from app.services import Services
from app.stop_token import StopToken
from py_core.backends.base import BackendError
from py_core.memory.errors import StoreError
from py_core.routing.embedder import EmbedderError


def paused(services: Services) -> AbstractContextManager[None]:
    """While it is open nothing is done in the background."""
    return services.memory.background.paused() if services.memory else nullcontext()


async def recall(services: Services, assistant: Assistant, text: str, stop: StopToken) -> LessonMatch | None:
    """The lesson that answers a message, also where the model has to read some for that. Never fails: the services are
    told."""
    learning = services.learning
    try:
        if services.consolidation is not None:
            await services.consolidation.refresh()  # what it learned from may be gone
        if services.style is not None:
            await services.style.refresh()
        if learning is None:
            return None
        found = await learning.recall_or_read(text)
        if not isinstance(found, UnsureMatch):
            return found
        with paused(services):
            return await read_facts(assistant, learning.memory, text, found, stop)
    except (EmbedderError, StoreError, BackendError, LessonError) as error:
        services.trouble(error)
        return None
