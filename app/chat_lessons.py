"""What a message teaches, and what it is answered with because it was taught."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from app.assistant import Assistant
from app.fact_reader import read_facts
from app.learning_service import Learned
from app.lesson_imprints import LessonError
from app.recalled import Recalled, Unsure
from app.services import Services
from py_core.backends.base import BackendError
from py_core.learning.teaching import Told, asked_to_remember, lesson_of
from py_core.memory.errors import StoreError
from py_core.routing.embedder import EmbedderError


def paused(services: Services) -> AbstractContextManager[None]:
    """While it is open nothing is done in the background."""
    return services.memory.background.paused() if services.memory else nullcontext()


def told_in(services: Services, text: str) -> Told | None:
    """What a message asks to remember, where that can be learned."""
    learning = services.learning
    statement = asked_to_remember(text) if learning is not None and learning.is_on else None
    return lesson_of(statement) if statement else None


async def learn(services: Services, told: Told) -> tuple[Learned | None, str]:
    """Learn it: what was learned, and what is said to that in place of the model."""
    learning = services.learning
    assert learning is not None
    try:
        with paused(services):
            learned = await learning.teach(told.question, told.answer)
    except (EmbedderError, StoreError, BackendError, LessonError) as error:
        return None, f"I could not remember that. {error}"
    return learned, f"I will remember that. When you ask \u201c{told.question}\u201d, I say: {learned.lesson.answer}"


async def recall(
    services: Services, assistant: Assistant, text: str, is_stopped: Callable[[], bool]
) -> Recalled | None:
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
        if not isinstance(found, Unsure):
            return found
        with paused(services):
            return None if is_stopped() else await read_facts(assistant, learning.memory, text, found)
    except (EmbedderError, StoreError, BackendError, LessonError) as error:
        services.trouble(error)
        return None
