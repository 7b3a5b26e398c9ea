"""Opens the memory and the router, and gives them to a conversation: what works without them goes on without them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from app.conversation import Conversation
from app.dispatch import Dispatcher
from py_core.memory.encryption import Crypto
from py_core.memory.errors import StoreError
from py_core.memory.fallback import open_or_volatile
from py_core.memory.memory import Memory
from py_core.memory.rows import EVERYTHING, Batch, Rows
from py_core.memory.store import Store
from py_core.memory.vectors import BruteForceIndex, VectorIndex
from py_core.memory.volatile import VolatileRows

State = Literal["opening", "ready", "locked"]


class MemoryKeeper:
    """`state` is that of the memory, `routing` that of the dispatcher, `problem` a sentence for the user, if any.

    While the memory is locked, what is learned is kept apart, and taken over when it is unlocked.
    """

    def __init__(
        self,
        crypto: Crypto,
        changed: Callable[[], None] = lambda: None,
        make_index: Callable[[int], VectorIndex] = BruteForceIndex,
    ) -> None:
        """changed: called when there is something new to show."""
        self.changed = changed
        self._crypto, self._make_index = crypto, make_index
        self.locked_rows: Rows | None = None
        self._conversation: Conversation | None = None
        self.memory: Memory
        self.dispatcher: Dispatcher | None = None
        self.state: State = "opening"
        self.routing: Literal["opening", "ready", "failed", "off"] = "opening"
        self.problem: str | None = None

    async def open(self, opening: Callable[[], Awaitable[Rows]]) -> None:
        """Open the memory with the rows of `opening`; memory alone where that fails, or until it is unlocked."""
        try:
            rows = await open_or_volatile(opening, self.trouble)
        except Exception as error:  # of a browser that does what none should
            self.trouble(error)
            rows = VolatileRows()
        try:
            await self._take(await Store.open(rows, crypto=self._crypto))
            self.state = "ready"
        except StoreError as error:
            await self._take(await Store.open(VolatileRows(), crypto=self._crypto))
            if error.reason == "locked":
                self.locked_rows, self.state = rows, "locked"
            else:
                self.trouble(error)
                self.state = "ready"
        self.changed()

    async def route_with(self, opening: Callable[[Memory], Awaitable[Dispatcher]]) -> None:
        """opening: makes a dispatcher over a memory; where it fails, the plain assistant answers."""
        try:
            self.dispatcher = await opening(self.memory)
            if self.dispatcher.memory is not self.memory:
                await self.dispatcher.move(self.memory)
            self.routing = "ready"
        except Exception as error:
            self.routing = "failed"
            self.trouble(error)
        self.serve(self._conversation)

    def serve(self, conversation: Conversation | None) -> None:
        """Let this conversation remember and be routed, now and whenever the memory is another one."""
        self._conversation = conversation
        if conversation is not None and self.state != "opening":
            conversation.memory, conversation.dispatcher = self.memory, self.dispatcher
        self.changed()

    def trouble(self, error: Exception) -> None:
        """Something failed that the chat goes on without."""
        self.problem = str(error) or type(error).__name__
        self.changed()

    async def unlock(self, passphrase: str | None) -> None:
        """Raises StoreError("passphrase") for a wrong one."""
        if self.locked_rows is None:
            return
        store = await Store.open(self.locked_rows, passphrase, crypto=self._crypto)
        meanwhile = self.memory
        await self._take(store)
        await self.memory.take_over(meanwhile)
        await meanwhile.close()
        self.locked_rows, self.state = None, "ready"
        if self.dispatcher is not None:
            await self.dispatcher.move(self.memory)
        self.serve(self._conversation)

    async def forget(self) -> None:
        """Delete all that is remembered; of a locked memory, whose passphrase may be lost, the passphrase too."""
        if self.locked_rows is None:
            await self.memory.writer.flush()
            await self.memory.store.clear()
            return
        await self.locked_rows.apply(Batch(clear=EVERYTHING, meta={"key": None}))
        await self.locked_rows.compact()
        await self.memory.store.clear()
        await self.unlock(None)

    async def close(self) -> None:
        """Write what waits, and close the memory. What is not written after a failure was told as trouble."""
        try:
            await self.memory.close()
            if self.locked_rows is not None:
                await self.locked_rows.close()
        except StoreError as error:
            self.trouble(error)

    async def _take(self, store: Store) -> None:
        self.memory = await Memory.open(store, self._make_index, self.trouble)
        store.on_change(lambda change: self.changed())
