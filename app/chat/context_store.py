"""Keeps what the model has read of the conversations for the next start (app/chat/kept_pages.py).

The pages of a conversation are stored after an answer, while the device is idle. After a reload the next answer begins
with the stored pages. What is deleted in the memory is deleted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence

from app.chat.kept_pages import KeptPages
from app.records.files import KIND as FILE
from app.records.memory import Memory
from app.records.sessions import KIND as SESSION
from app.records.sessions import TURN
from py_core.store.errors import StoreError
from py_core.store.rows import EVERYTHING, Change, Rows

BUDGET = 200_000_000
"""Bytes of pages at most. For SmolLM2-135M on the CPU that is 7,400 tokens."""
_OF_CHATS = (SESSION, TURN, FILE)
"""Kinds of records of a conversation; their ids begin with its id."""

Listen = Callable[[Callable[[Change], None]], Callable[[], None]]
"""Calls a listener with each change of the memory, and returns a function to stop."""


class ContextStore:
    """Opened at the first need. No method raises. If there is no place for pages, it holds none."""

    def __init__(
        self, memory: Callable[[], Memory | None], opening: Callable[[], Awaitable[Rows]] | None, listen: Listen,
        budget: int = BUDGET,
    ) -> None:  # fmt: skip
        """memory: returns the memory of the conversations, once it is open. opening: opens the rows of the pages."""
        self._memory, self._opening, self._budget = memory, opening, budget
        self._opened: asyncio.Future[KeptPages | None] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._running: dict[str, asyncio.Task[object]] = {}
        """Tasks by the conversation's id."""
        self._given_up = False
        self._unlisten = listen(self._on_change)

    def shelf(self, chat: str) -> ChatShelf:
        """Return the shelf of a stored conversation."""
        return ChatShelf(self, chat)

    def run(self, chat: str, work: Coroutine[object, object, object] | asyncio.Task[None]) -> None:
        """Run what keeps or brings the pages of a conversation in the background. It replaces what runs already."""
        if (known := self._running.get(chat)) is not None:
            known.cancel()
        self._running[chat] = task = self._begin(work)
        task.add_done_callback(lambda task: self._running.pop(chat) if self._running.get(chat) is task else None)

    async def settled(self) -> None:
        """Wait until the work in the background has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def nbytes(self) -> int | None:
        """Return the bytes of all pages. None if there is no place for them."""
        return await pages.nbytes() if (pages := await self.pages()) is not None else None

    async def clear(self) -> None:
        """Delete all pages."""
        if (pages := await self._all()) is not None:
            await pages.clear()

    async def give_up(self) -> None:
        """Leave the space to data that cannot be made again: delete all pages, and keep none until the next start.
        Nothing happens before the memory is open."""
        if self._memory() is not None and not self._given_up:
            self._given_up = True
            await self.clear()

    async def close(self) -> None:
        self._unlisten()
        for task in self._tasks:
            task.cancel()
        await self.settled()
        if self._opened is not None and (pages := await self._opened) is not None:
            await pages.close()

    async def pages(self) -> KeptPages | None:
        """Return None if there is no place for them: none is wanted, the memory is locked, temporary or not open yet,
        or the pages cannot be opened."""
        return None if self._given_up else await self._all()

    async def _all(self) -> KeptPages | None:
        memory = self._memory()
        if self._opening is None or memory is None or memory.is_locked or not memory.store.persistent:
            return None
        if self._opened is None:
            self._opened = asyncio.ensure_future(self._open(memory, self._opening))
        return await asyncio.shield(self._opened)

    async def is_there(self, chat: str) -> bool:
        """True if a conversation was not deleted."""
        memory = self._memory()
        try:
            return memory is not None and await memory.store.get(SESSION, chat) is not None
        except StoreError:
            return False

    async def _open(self, memory: Memory, opening: Callable[[], Awaitable[Rows]]) -> KeptPages | None:
        try:
            rows = await opening()
            chats = {session.id for session in await memory.sessions.all()}
        except Exception:  # it only helps: nothing is missed without it
            return None
        pages = KeptPages(rows, lambda: memory.store.lock, self._budget)
        await pages.forget_others(chats)  # they were deleted by a program that could not delete their pages
        return pages

    def _on_change(self, change: Change) -> None:
        if change.cleared in (EVERYTHING, *_OF_CHATS):
            self._begin(self.clear())
        elif change.everything:
            self._begin(self._look_again())
        elif gone := {id.partition("/")[0] for kind, id in change.deletes if kind in _OF_CHATS}:
            self._begin(self._forget(gone))

    async def _look_again(self) -> None:
        if (pages := await self.pages()) is not None:
            await pages.look_again()

    async def _forget(self, chats: Collection[str]) -> None:
        if (pages := await self.pages()) is not None:
            await pages.forget(*chats)

    def _begin(self, work: Coroutine[object, object, object] | asyncio.Task[None]) -> asyncio.Task[object]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # for example because the model was closed meanwhile: nothing is kept


class ChatShelf:
    """The pages of one conversation: a `PageShelf` (engine/page_keeping.py)."""

    def __init__(self, store: ContextStore, chat: str) -> None:
        self._store, self.chat = store, chat

    async def names(self) -> Collection[str]:
        pages = await self._store.pages()
        return await pages.names(self.chat) if pages else ()

    async def read(self, names: Sequence[str]) -> list[bytes]:
        pages = await self._store.pages()
        return await pages.read(self.chat, names) if pages else []

    async def write(self, name: str, data: bytes) -> bool:
        pages = await self._store.pages()
        if pages is None or not await self._store.is_there(self.chat):
            return False
        return await pages.write(self.chat, name, data)

    async def drop(self, names: Sequence[str]) -> None:
        if pages := await self._store.pages():
            await pages.drop(self.chat, names)
