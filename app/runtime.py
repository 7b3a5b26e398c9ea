"""The services beside the model: the memory, the routing, the learning. A chat works without any of them.

    runtime = await Runtime.open(RuntimeConfig(lambda: SQLiteRows.open(path), router=router))
    await runtime.use_model(Learner(model, base_sha256))     # which can be taught from now on

A page is asked while all of it opens: it begins with `Runtime(config)` and `start`, and waits for the stages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.chat.context_store import ContextStore
from app.chat.turn_indexer import TurnIndexer
from app.consolidation.idle_learning import IDLE_SECONDS, IdleLearning
from app.consolidation.idle_work import OnlyOne
from app.files.service import FileService
from app.lessons.service import LearningService
from app.lessons.shipped_gate import shipped_gate
from app.records.kinds import KINDS
from app.records.memory import Memory
from app.records.policies import Policies
from app.records.sessions import KIND as CONVERSATION
from app.routing.factory import RouterParts
from app.routing.service import RoutingService
from app.stage import Stage, State
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.learning.gate.gate import Gate
from py_core.messages import Message, Words, words_of
from py_core.routing.embedder import Embedder
from py_core.store.encryption import Crypto, NativeCrypto
from py_core.store.errors import SENTENCES, StoreError
from py_core.store.fallback import FallbackRows, open_or_volatile
from py_core.store.rows import Change, Rows
from py_core.store.store import Store
from py_core.store.volatile import VolatileRows

if TYPE_CHECKING:  # what trains is imported when it is opened: the first answer does not wait for it
    from app.consolidation.service import ConsolidationService
    from app.generation.answer_adapters import AnswerAdapters
    from app.lessons.reader import FactReader
    from py_core.loading import Model

MEMORY_PATIENCE = 30.0
"""Seconds that a complete answer waits for a memory that is still opening, so that it is remembered."""
NO_ROUTING = Message("routing.off", "The address of this page switches routing off (?routing=off).")
NO_EMBEDDER = Message(
    "learning.no-embedder",
    "Nothing can be taught without the sentence embedder, which routing loads: open the page "
    "without ?routing=off, or reload it.",
)
NAMELESS_MODEL = Message(
    "learning.nameless-model",
    "This model cannot be taught: the browser does not keep it, and what a model learns belongs to its file. Open it "
    "in Settings, Model.",
)
DIFFUSION_MODEL = Message(
    "learning.diffusion-model",
    "This model cannot be taught, because it writes by diffusion. Choose another model for that.",
)
_IDLE_KINDS = {"lesson", "trajectory", "policy", "pattern"}
"""The kinds of records on which it depends whether there is something to learn, and whether a loop is on."""


def _nothing_changed() -> None:
    """Do nothing: no page shows changes."""


@dataclass(frozen=True)
class Learner:
    """A model that is taught, and the parts that learn with it."""

    model: Model
    base_sha256: str
    """The checksum of its file, to which all that it learns belongs; "" if unknown: then nothing can be taught."""
    adapters: AnswerAdapters | None = None
    """The adapters of its answers. None: answers use lessons only, not the adapters that loops made of them."""
    uses_trained: bool = True
    """True if answers use what was trained in pauses."""
    only_one: OnlyOne | None = None
    """The lock among all programs that learn over this memory. None: this program learns nothing in pauses."""
    idle_seconds: float = IDLE_SECONDS
    reader: FactReader | None = None
    embedder: Callable[[], Embedder] | None = None
    """Opens the embedder if there is no routing. May raise EmbedderError."""


@dataclass(frozen=True)
class RuntimeConfig:
    """The parts that a runtime opens: the memory, then the routing, then the learning. None: the part is not opened."""

    rows: Callable[[], Awaitable[Rows]] | None = None
    """Opens the rows of the memory."""
    memory: Memory | None = None
    """A memory that is already open, instead of `rows`."""
    pages: Callable[[], Awaitable[Rows]] | None = None
    """Opens the store of the conversations' keys and values, when it is needed."""
    router: Callable[[], Awaitable[RouterParts]] | None = None
    embedder: Callable[[], Embedder | None] | None = None
    """Opens the embedder for files, if it is not the routing's."""
    learner: Learner | None = None
    crypto: Crypto = field(default_factory=NativeCrypto)
    changed: Callable[[], None] = _nothing_changed
    """Called when there is something new to show."""


class Runtime:
    """Opens the parts, holds them, and closes them. Parts that are missing, or not open yet, are None.

    `problem` is a sentence for the user, if something failed.
    """

    def __init__(self, config: RuntimeConfig | None = None) -> None:
        """Nothing is open before `start`."""
        self._config = config or RuntimeConfig()
        self.changed = self._config.changed
        self.memory_stage = Stage(is_asked=self._config.rows is not None)
        self.routing_stage = Stage(is_asked=self._config.router is not None)
        self.learning_stage = Stage()
        self.memory_if_open: Memory | None = None
        self.routing: RoutingService | None = None
        self.learning: LearningService | None = None
        self.consolidation: ConsolidationService | None = None
        self.idle: IdleLearning | None = None
        self.files = FileService(
            lambda: self.memory, self._config.embedder or self.embedder, self.routing_stage, self.trouble,
            lambda: self.changed(),
        )  # fmt: skip
        self.problem: Words | None = None
        self._listeners: list[Callable[[Change], None]] = []
        self.pages = ContextStore(lambda: self.memory_if_open, self._config.pages, self.listen)
        self.indexer = TurnIndexer(lambda: self.memory, self.embedder, self.listen, self.trouble)
        self._rows: FallbackRows | VolatileRows | None = None  # of the memory, unlocked or not
        self._kernel: HnswKernel | None = None
        self._gate: bytes | None = None  # of lessons, if it came with the embedder
        self._told: set[Words] = set()
        self._patience = MEMORY_PATIENCE

    @classmethod
    async def open(cls, config: RuntimeConfig) -> Runtime:
        """Never fails: what cannot be opened is missing, and `problem` says why."""
        runtime = cls(config)
        await runtime.start()
        return runtime

    async def start(self) -> None:
        """As `open`; called once."""
        if self._config.rows is not None:
            self._take(await self._open_memory(self._config.rows))
            self._check()
        elif self._config.memory is not None:
            self._take(self._config.memory)
        if self._config.router is not None:
            await self._open_routing(self._config.router)
        else:
            self.routing_stage.end(State.OFF, NO_ROUTING)
        self.changed()
        if self._config.learner is not None:
            await self.use_model(self._config.learner)

    # ---- the memory ----

    @property
    def memory(self) -> Memory:
        """Raises StoreError("busy") until it is open."""
        if self.memory_if_open is None:
            raise StoreError("busy", "memory.opening", "The memory is still opening. Try again in a moment.")
        return self.memory_if_open

    async def opened_memory(self) -> Memory | None:
        """Return the memory once it is open. None if none is opened, or it takes longer than MEMORY_PATIENCE."""
        try:
            async with asyncio.timeout(self._patience):
                await self.memory_stage.wait()
        except TimeoutError:
            self._patience = 0.0  # no other answer waits for it
        return self.memory_if_open

    async def _open_memory(self, opening: Callable[[], Awaitable[Rows]]) -> Memory:
        """A temporary one, if these rows cannot be opened."""
        try:
            rows = self._rows = await open_or_volatile(opening, self.trouble, self.pages.give_up)
        except Exception as error:  # an unforeseen failure of a browser
            self.trouble(error)
            rows = VolatileRows()
        try:
            return await self._memory_over(rows)
        except Exception as error:
            self.trouble(error)
            return await self._memory_over(VolatileRows())

    def _take(self, memory: Memory) -> None:
        self.memory_if_open = memory
        memory.store.on_change(self._on_change)
        self.memory_stage.end(State.LOCKED if memory.is_locked else State.READY)
        self.changed()

    async def _memory_over(self, rows: Rows) -> Memory:
        store = await Store.open_lockable(rows, kinds=KINDS, crypto=self._config.crypto)
        return await Memory.open(store, lambda: self._kernel, self.trouble)

    def is_on(self, policy: str) -> bool:
        """Return True if a policy's switch is on; while the memory is not open, it is."""
        return self.memory_if_open is None or self.memory.policies.is_on(policy)

    def keeps(self, conversation: str) -> bool:
        """Return True if the conversation with this id is still there after a restart of the page or the program."""
        if self.memory_if_open is None:
            return False
        kept = self._rows.kept if isinstance(self._rows, FallbackRows) else frozenset()
        return self.memory.store.persistent or (CONVERSATION, conversation) in kept

    async def unlock(self, passphrase: str | None) -> None:
        """Raises StoreError("passphrase") for a wrong one."""
        if self.memory_if_open is not None:
            await self.memory.unlock(passphrase)
            await self._note_unlocked()

    async def forget(self) -> None:
        """Delete everything in the memory; of a locked memory, whose passphrase may be lost, the passphrase too."""
        if self.memory_if_open is None:
            return
        if self.routing is not None:
            self.routing.forget_messages()
        await self.pages.clear()
        await self.memory.forget()
        await self._note_unlocked()

    async def _note_unlocked(self) -> None:
        if self.memory_stage.state != State.LOCKED or self.memory.is_locked:
            return
        self.memory_stage.end(State.READY)
        self._check()
        if self.idle is not None:
            self.idle.look_again()
        for part in (self.routing, self.learning, self.consolidation):
            if part is not None:
                await part.refresh()
        self.changed()

    def _check(self) -> None:
        """Report problems of the memory, and look for more in the background."""
        memory = self.memory

        async def check() -> None:
            with contextlib.suppress(StoreError):  # it was closed meanwhile
                await memory.store.check(memory.background.step)

        self._tell_of_store()
        memory.background.start(check)

    # ---- the routing ----

    async def _open_routing(self, opening: Callable[[], Awaitable[RouterParts]]) -> None:
        """If it fails, the plain assistant answers."""
        try:
            parts = await opening()
            self._kernel, self._gate = parts.kernel, parts.gate
            self.routing = await RoutingService.open(parts.embedder, parts.data, self.memory, parts.kernel)
            self.routing_stage.end(State.READY)
        except Exception as error:
            self.trouble(error)
            why = Message("routing.failed", "Routing is not available: {why} Reload the page.", why=self.problem)
            self.routing_stage.end(State.FAILED, why)

    def embedder(self) -> Embedder | None:
        """Return the embedder of the routing, once it is open."""
        return self.routing.embedder if self.routing is not None else None

    # ---- the learning ----

    async def use_model(self, learner: Learner) -> None:
        """Let a model be taught, and learn in pauses, instead of the one before. It waits for the memory and the
        routing. Never fails: if nothing can be taught, `learning_stage` says why, and the plain model answers."""
        self.learning_stage.begin()
        learner.model.name_file(learner.base_sha256)
        await self.routing_stage.wait()
        await self._end_learning()
        state, why = await self._open_learning(learner)
        if self.learning is not None and learner.adapters is not None and learner.uses_trained:
            await self._open_trained(self.learning, learner.adapters)
        self.learning_stage.end(state, why)
        self.changed()
        if learner.only_one is not None:
            self._learn_in_pauses(learner, learner.only_one)

    async def _open_learning(self, learner: Learner) -> tuple[State, Words | None]:
        embedder = self.embedder()
        if embedder is None and learner.embedder is None:
            return State.OFF, NO_EMBEDDER
        if not learner.base_sha256:
            return State.OFF, NAMELESS_MODEL
        if learner.model.config.diffusion is not None:
            return State.OFF, DIFFUSION_MODEL
        try:
            if embedder is None:
                assert learner.embedder is not None
                embedder = learner.embedder()
            self.learning = await LearningService.open(
                learner.model,
                learner.base_sha256,
                embedder,
                self.memory,
                Gate.from_bytes(self._gate) if self._gate else shipped_gate(embedder.is_multilingual),
                learner.reader,
            )
        except Exception as error:
            self.trouble(error)
            return State.FAILED, self.problem
        return State.READY, None

    async def _open_trained(self, learning: LearningService, adapters: AnswerAdapters) -> None:
        """Let the model answer with the adapter that trainings made of its lessons."""
        from app.consolidation.service import ConsolidationService

        try:
            self.consolidation = await ConsolidationService.open(learning, adapters, adapters.use_learned)
        except Exception as error:
            self.trouble(error)

    def _learn_in_pauses(self, learner: Learner, only_one: OnlyOne) -> None:
        from app.consolidation.idle_loops import idle_loops

        loops = idle_loops(lambda: self.memory, self.embedder, self.learning, self.consolidation)
        if self.learning is not None:
            self.learning.prepares_in_pauses = True
        hold = learner.model.engine.idle_held
        self.idle = IdleLearning(
            loops, self._lasting_policies, hold, only_one, lambda: self.changed(), learner.idle_seconds
        )
        self.idle.start()

    async def _end_learning(self) -> None:
        if self.idle is not None:
            await self.idle.close()
        for part in (self.consolidation, self.learning):
            if part is not None:
                part.close()
        self.idle = self.consolidation = self.learning = None

    def answering(self) -> AbstractContextManager[None]:
        """Return a context in which an answer is being generated: nothing is learned meanwhile."""
        return self.idle.busy() if self.idle is not None else nullcontext()

    def _lasting_policies(self) -> Policies | None:
        memory = self.memory_if_open
        return None if memory is None or memory.is_locked else memory.policies

    # ---- all of it ----

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with each change of the memory, also of one that opens later. Returns a function to stop."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def trouble(self, error: Exception) -> None:
        """Report a failure that the chat can continue without."""
        self.problem = words_of(error)
        self.changed()

    async def close(self) -> None:
        """Write pending records, and close the memory. Records lost by a failure were already reported as trouble."""
        await self._end_learning()
        await self.pages.close()
        if self.memory_if_open is not None:
            try:
                await self.memory.close()
            except StoreError as error:
                self.trouble(error)

    def _on_change(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
        kinds = {kind for kind, _ in (*change.puts, *change.deletes)}
        if self.idle is not None and (change.cleared is not None or _IDLE_KINDS & kinds):
            self.idle.look_again()
        self._tell_of_store()

    def _tell_of_store(self) -> None:
        store, suspicion = self.memory.store, None
        if store.suspicion is not None:
            suspicion = Message("memory.see-storage", "{said} See Settings, Storage.", said=store.suspicion)
        for said in (SENTENCES["unreadable"] if store.unreadable else None, store.uncompacted, suspicion):
            if said is not None and said not in self._told:
                self._told.add(said)
                self.problem = said
        self.changed()
