"""The page's calls for the model that runs, and for its learning in idle times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypedDict

from app.consolidation.idle_learning import IDLE_SECONDS
from app.page.talk import PageTalk


class PagesOwner(Protocol):
    """Runs the model for all pages: PageModel in app/page/worker.py."""

    async def open_learning(self, base_sha256: str, idle_seconds: float) -> None: ...

    async def forget_adapter(self, name: str) -> None: ...


class PageMemory(TypedDict):
    """Bytes that conversations hold, that are kept for the next conversations, and that are free."""

    conversations: int
    kept: int
    free: int


class ModelMemory(TypedDict):
    """Bytes. pages: by tier. limit: the most that all of it may take, None if no limit was set."""

    weights: int
    adapters: int
    scratch: int
    pages: Mapping[str, PageMemory]
    draft: int
    limit: int | None
    total: int


class ModelApi:
    """Each public method is a call of the page."""

    def __init__(self, talk: PageTalk, owner: PagesOwner) -> None:
        self._talk, self._owner = talk, owner

    async def open_learning(self, base: str = "", idle: float | None = None) -> None:
        """Let the model that runs be taught, once the memory and the routing are there. LearningApi.overview tells if
        that failed. base: the sha256 of the model's file, "" if it is not known. idle: the seconds without activity
        after which it may learn, None: the usual number."""
        await self._owner.open_learning(base, IDLE_SECONDS if idle is None else idle)

    async def forget_adapter(self, name: str) -> None:
        """Forget a deleted adapter: the next answers come without it, and answers that it gives end."""
        await self._owner.forget_adapter(name)

    def note_activity(self) -> None:
        """Note that the person does something, here or in another tab: idle learning pauses for a while."""
        self._talk.note_activity()

    def note_battery(self, level: float, charging: bool) -> None:
        """level: 0 to 1."""
        if self._talk.runtime.idle is not None:
            self._talk.runtime.idle.note_battery(level, charging)

    def memory_use(self) -> ModelMemory:
        """Return what the model's memory holds now."""
        return self._talk.model().engine.memory().facts()  # type: ignore[return-value]
