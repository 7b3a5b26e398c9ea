"""What runs beside the model: the memory, the routing, the learning. A chat works without any of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from app.chat.page_store import PageStore
from app.chat.turn_indexer import TurnIndexer
from app.consolidation.idle_learning import IDLE_SECONDS, IdleLearning
from app.consolidation.idle_work import Loop, OnlyOne
from app.files.service import FileService
from app.generation.resident_adapters import ResidentAdapters
from app.lessons.service import LearningService
from app.protocol import LearningState, MemoryState, RoutingState
from app.routing.service import RoutingService
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.memory.encryption import Crypto
from py_core.memory.errors import SENTENCES, StoreError
from py_core.memory.fallback import FallbackRows, open_or_volatile
from py_core.memory.ledger import LEDGER
from py_core.memory.memory import Memory
from py_core.memory.policies import Policies
from py_core.memory.records import Record
from py_core.memory.rows import EVERYTHING, UNCOMPACTED, Batch, Change, Rows
from py_core.memory.schemas import problem_of
from py_core.memory.sessions import KIND as CONVERSATION
from py_core.memory.store import Store
from py_core.memory.volatile import VolatileRows
from py_core.messages import Message, Words, words_of
from py_core.routing.embedder import DIMENSIONS

if TYPE_CHECKING:  # what trains is imported when it is opened: the first answer does not wait for it
    from app.consolidation.service import AnswerWith, ConsolidationService
    from app.consolidation.style_service import StyleService

MEMORY_PATIENCE = 30.0
"""Seconds that an answer which is complete waits for a memory that is still opening, so that it is remembered."""


def problem_of_record(record: Record) -> str | None:
    """As in py_core.memory.schemas; vectors must have the embedder's dimensions."""
    return problem_of(record, DIMENSIONS)


_IDLE_KINDS = {"lesson", "trajectory", "policy", "pattern"}
"""Records that say whether there is something to learn, and whether that is switched on."""


def _kinds_of(change: Change) -> set[str]:
    return {kind for kind, _ in (*change.puts, *change.deletes)}


class Runtime:
    """Opens the memory and the routing, and holds them: one that is missing, or not open yet, is None.

    While the memory is locked, `memory` is a temporary one, whose records move to the real one when it is unlocked.
    `problem` is a sentence for the user, if something failed.
    """

    def __init__(
        self,
        crypto: Crypto,
        changed: Callable[[], None] = lambda: None,
        kernel: Callable[[], HnswKernel | None] = lambda: None,
    ) -> None:
        """changed: called when there is something new to show. kernel: of the memory's indexes, once it is loaded."""
        self.changed = changed
        self._crypto, self._kernel = crypto, kernel
        self._listeners: list[Callable[[Change], None]] = []
        self.locked_rows: Rows | None = None
        self.memory: Memory | None = None
        self.routing: RoutingService | None = None
        self.learning: LearningService | None = None
        self.consolidation: ConsolidationService | None = None
        self.style: StyleService | None = None
        self.idle: IdleLearning | None = None
        self.indexer: TurnIndexer | None = None
        self.files = FileService(self)
        self.pages: PageStore | None = None
        """What the model has read of the conversations; None where that is not kept."""
        self.memory_state: MemoryState = "opening"
        self.routing_state: RoutingState = "opening"
        self.learning_state: LearningState = "opening"
        self.why_not_learning: Words | None = None
        """A sentence, where learning failed or is off."""
        self.problem: Words | None = None
        self._rows: FallbackRows | VolatileRows | None = None  # of the memory, unlocked or not
        self._told: set[Words] = set()
        self._opening: asyncio.Future[None] | None = None

    async def open(self, opening: Callable[[], Awaitable[Rows]]) -> None:
        """Open the memory with the rows of `opening`. If that fails, or until it is unlocked, use a temporary one."""
        opening_ends = self._opening = asyncio.get_running_loop().create_future()
        try:
            rows = self._rows = await open_or_volatile(opening, self.trouble, self._make_room)
        except Exception as error:  # an unforeseen failure of a browser
            self.trouble(error)
            rows = VolatileRows()
        try:
            await self._take(await self._open_store(rows))
            self.memory_state = "ready"
        except Exception as error:
            await self._take(await self._open_store(VolatileRows()))
            if isinstance(error, StoreError) and error.reason == "locked":
                self.locked_rows, self.memory_state = rows, "locked"
            else:
                self.trouble(error)
                self.memory_state = "ready"
        opening_ends.set_result(None)
        self.changed()

    def memory_now(self) -> Memory:
        """The memory. Raises StoreError("busy") while it is opening."""
        if self.memory is None:
            raise StoreError("busy", "memory.opening", "The memory is still opening. Try again in a moment.")
        return self.memory

    async def opened_memory(self) -> Memory | None:
        """The memory, once it is open. None where nobody opens one, or it takes longer than MEMORY_PATIENCE."""
        if self.memory is None and self._opening is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._opening), MEMORY_PATIENCE)
            except TimeoutError:
                self._opening = None  # no other answer waits for it
        return self.memory

    def keep_pages(self, opening: Callable[[], Awaitable[Rows]]) -> None:
        """Keep what the model reads of the conversations in the rows of `opening`, which are opened when needed."""
        self.pages = PageStore(self, opening)

    def keeps(self, conversation: str) -> bool:
        """Whether a conversation, by its id, is there when the page or the program starts again."""
        if self.memory is None:
            return False
        kept = self._rows.kept if isinstance(self._rows, FallbackRows) else frozenset()
        return self.memory.store.persistent or (CONVERSATION, conversation) in kept

    async def _make_room(self) -> None:
        if self.pages is not None:
            await self.pages.give_up()

    async def route_with(self, opening: Callable[[Memory], Awaitable[RoutingService]]) -> None:
        """opening: makes the routing over a memory; where it fails, the plain assistant answers. After `open`."""
        memory = self.memory_now()
        try:
            routing = await opening(memory)
            if routing.memory is not self.memory:  # it was unlocked meanwhile
                await routing.move(self.memory_now())
            self.routing, self.routing_state = routing, "ready"
            self.indexer = TurnIndexer(self.memory_now(), routing.embedder, self.trouble)
        except Exception as error:
            if self.memory is not memory:  # the temporary memory was closed while the routing read it
                return await self.route_with(opening)
            self.routing_state = "failed"
            self.trouble(error)
        self.changed()

    async def learn_with(self, opening: Callable[[Memory], Awaitable[LearningService]]) -> None:
        """opening: makes the learning over a memory, for the model that answers; where it fails, nothing can be taught
        and `why_not_learning` says why. After `open` and `route_with`. Another model's takes the place of this one's.
        """
        memory = self.memory_now()
        self._leave_style()
        if self.learning is not None:
            self.learning.close()
            self.learning = None
        try:
            learning = await opening(memory)
            if learning.memory is not self.memory:  # it was unlocked meanwhile
                await learning.move(self.memory_now())
            self.learning, self.learning_state, self.why_not_learning = learning, "ready", None
        except Exception as error:
            if self.memory is not memory:  # the temporary memory was closed while it was read
                return await self.learn_with(opening)
            self.learning_state, self.why_not_learning = "failed", words_of(error)
            self.trouble(error)
        self.changed()

    async def consolidate_with(self, adapters: ResidentAdapters, answer_with: AnswerWith) -> None:
        """Let the model answer with what the background loop made of its lessons: see ConsolidationService.open. After
        `learn_with`; where that failed, or this does, the plain model answers."""
        if self.consolidation is not None:
            self.consolidation.close()
            self.consolidation = None
        if self.learning is None:
            return
        from app.consolidation.service import ConsolidationService

        try:
            self.consolidation = await ConsolidationService.open(self.learning, adapters, answer_with)
        except Exception as error:
            self.trouble(error)
        self.changed()

    async def style_with(self, answer_with: Callable[[int], None]) -> None:
        """Let the model answer in the style that the person likes: see StyleService.open. After `consolidate_with`."""
        self._leave_style()
        if self.learning is None:
            return
        from app.consolidation.style_service import StyleService

        try:
            self.style = await StyleService.open(self.learning, answer_with)
        except Exception as error:
            self.trouble(error)
        self.changed()

    def learn_nothing(self, why: Message) -> None:
        """Learning is off; why: a sentence."""
        self._leave_style()
        self.learning_state, self.why_not_learning = "off", why
        self.changed()

    async def learn_idly(
        self, loops: Sequence[Loop], hold: Callable[[], AbstractContextManager[None]], only_one: OnlyOne,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:  # fmt: skip
        """Run the loops while nobody waits, until `close`; those of another model are ended first. hold:
        `Engine.idle_held`."""
        if self.idle is not None:
            await self.idle.close()
        self.idle = IdleLearning(loops, self._lasting_policies, hold, only_one, lambda: self.changed(), idle_seconds)
        if self.learning is not None:
            self.learning.prepares_in_pauses = any(loop.name == "preparation" for loop in loops)
        self.idle.start()

    def answering(self) -> AbstractContextManager[None]:
        """While it is open an answer is under way: nothing is learned beside it."""
        return self.idle.busy() if self.idle is not None else nullcontext()

    def _lasting_policies(self) -> Policies | None:
        return self.memory.policies if self.memory is not None and self.memory_state == "ready" else None

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with each change of the memory, whichever memory that is then. Returns what ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def trouble(self, error: Exception) -> None:
        """Something failed that the chat goes on without."""
        self.problem = words_of(error)
        self.changed()

    async def unlock(self, passphrase: str | None) -> None:
        """Raises StoreError("passphrase") for a wrong one."""
        if self.locked_rows is None or self.memory is None:
            return
        store = await self._open_store(self.locked_rows, passphrase)
        temporary = self.memory
        await (await self._take(store)).take_over(temporary)
        await temporary.close()
        self.locked_rows, self.memory_state = None, "ready"
        if self.idle is not None:
            self.idle.look_again()
        if self.routing is not None:
            await self.routing.move(self.memory)
            self.indexer = TurnIndexer(self.memory, self.routing.embedder, self.trouble)
        if self.learning is not None:
            await self.learning.move(self.memory)
        if self.consolidation is not None:
            await self.consolidation.refresh()
        if self.style is not None:
            await self.style.refresh()
        self.changed()

    async def forget(self) -> None:
        """Delete everything in the memory; of a locked memory, whose passphrase may be lost, the passphrase too."""
        if self.memory is None:
            return
        if self.routing is not None:
            self.routing.forget_messages()
        if self.pages is not None:
            await self.pages.clear()
        if self.locked_rows is None:
            await self.memory.writer.flush()
            await self.memory.store.clear()
            return
        await self.locked_rows.note_locked(False)
        await self.locked_rows.apply(Batch(clear=EVERYTHING, meta={"key": None, LEDGER: None, UNCOMPACTED: "yes"}))
        await self.memory.store.clear()
        await self.unlock(None)

    async def close(self) -> None:
        """Write what waits, and close the memory. What is not written after a failure was told as trouble."""
        if self.idle is not None:
            await self.idle.close()
            self.idle = None
        if self.pages is not None:
            await self.pages.close()
        try:
            if self.memory is not None:
                await self.memory.close()
            if self.locked_rows is not None:
                await self.locked_rows.close()
        except StoreError as error:
            self.trouble(error)

    def _leave_style(self) -> None:
        """Of a model that answers no more."""
        if self.style is not None:
            self.style.close()
            self.style = None

    async def _take(self, store: Store) -> Memory:
        memory = self.memory = await Memory.open(store, self._kernel, self.trouble)
        store.on_change(lambda change: self._on_change(store, change))
        self._note(store)

        async def check() -> None:
            with contextlib.suppress(StoreError):  # it was closed meanwhile
                await store.check(memory.background.step)

        memory.background.start(check)
        return memory

    async def _open_store(self, rows: Rows, passphrase: str | None = None) -> Store:
        return await Store.open(rows, passphrase, crypto=self._crypto, problem_of=problem_of_record)

    def _on_change(self, store: Store, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
        if self.idle is not None and (change.cleared is not None or _IDLE_KINDS & _kinds_of(change)):
            self.idle.look_again()
        self._note(store)

    def _note(self, store: Store) -> None:
        suspicion = None
        if store.suspicion is not None:
            suspicion = Message("memory.see-storage", "{said} See Settings, Storage.", said=store.suspicion)
        for said in (SENTENCES["unreadable"] if store.unreadable else None, store.uncompacted, suspicion):
            if said is not None and said not in self._told:
                self._told.add(said)
                self.problem = said
        self.changed()
