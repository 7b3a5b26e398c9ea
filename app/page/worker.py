"""The Pyodide entry: the model and what belongs to it, for all pages that it answers.

web/engine/worker.js makes one PageModel, and asks it for a session (app/page/session.py) for each page. Calls beyond
the apis need objects of JavaScript; they take their arguments by name, too. Only strings and numbers go back (several
as JSON), so that no proxy has to be destroyed on either side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyodide.ffi import JsException, to_js

from app.consolidation.one_learner import TabLock
from app.generation.answer_adapters import AnswerAdapters
from app.generation.assistant import MAX_TOKENS, Assistant
from app.generation.grammars import VocabularyGrammars
from app.lessons.reader import FactReader
from app.models.fit_check import Fitting, fit_check, fit_facts
from app.page.adapters import made_of
from app.page.calls import answer_of
from app.page.session import PageSession
from app.routing.factory import RouterParts
from app.runtime import Learner, Runtime, RuntimeConfig
from py_core.backend_errors import BackendError
from py_core.backends.browser_source import BrowserSource
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.fit import cost
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
from py_core.loading import BackendLoader, Model, load_model, read_description
from py_core.messages import Message
from py_core.messages_browser import js_words
from py_core.models.names import licence_of, title_of
from py_core.paging.tiers import TierPolicy
from py_core.routing.embedder import EmbedderError
from py_core.routing.embedder_browser import browser_embedder
from py_core.store.encryption_browser import BrowserCrypto
from py_core.store.errors import StoreError
from py_core.store.indexeddb import IndexedDBRows
from py_core.tokenizers.template_renderer_browser import BrowserTemplateRenderer

if TYPE_CHECKING:
    from py_core.grammar.kernel import KernelHost

JsObject = Any

PAGES = "sonata-pages"
"""The database of what the model has read (app/chat/context_store.py)."""
LOST = Message(
    "memory.thrown-away",
    "The browser found Sonata's memory damaged and deleted it. If you have an export, import it in Settings, Storage.",
)


class PageModel:
    """One model, its memory and what it learns; a session for each page that uses it."""

    def __init__(
        self, derive_cipher: JsObject, on_memory: Callable[[], None], one_learner: JsObject, fetch_reader: JsObject,
        memory_store: JsObject, router: JsObject | None = None,
    ) -> None:  # fmt: skip
        """derive_cipher: from web/memory/encryption.js. on_memory: called when the memory or the router changed.
        one_learner: from web/learning/one_learner.js. fetch_reader: returns the site's file of a reader
        (app/lessons/reader.py) by its name, as a promise. memory_store: from web/memory/indexeddb.js. router: a promise
        of {embedder, kernel, data, gate}: web/routing/embedder.js, web/routing/hnsw_kernel.js, routing.safetensors, and
        gate.safetensors if the embedder is the multilingual one; without it nothing is routed."""
        self._fetch_reader = fetch_reader
        self._one_learner = TabLock(one_learner)
        self._runtime = Runtime(
            RuntimeConfig(
                rows=lambda: self._open_rows(memory_store), pages=lambda: IndexedDBRows.open(memory_store, PAGES),
                router=None if router is None else lambda: open_router(router),
                crypto=BrowserCrypto(derive_cipher), changed=on_memory,
            )
        )  # fmt: skip
        self._read = partial(read_description, context=None, before_loading=lambda header, config, graph: None)
        self._sessions: list[PageSession] = []
        self._model: Model | None = None
        self._adapters: AnswerAdapters | None = None
        self._max_tokens = MAX_TOKENS
        self._opening_learning: asyncio.Task[None] | None = None

    def new_session(self) -> PageSession:
        """Make the session of a page, also before `start`."""
        session = PageSession(self._runtime, self._new_assistant, self)
        self._sessions.append(session)
        return session

    async def end_session(self, session: PageSession) -> None:
        """End a session whose page is gone."""
        self._sessions.remove(session)
        await session.close()

    async def start(
        self, *, device: JsObject | None, stream: JsObject, templates: JsObject,
        on_progress: Callable[[int, int], None], precision: str, tuning: JsObject | None, memory: int | None,
        chosen_memory: int | None, context: int | None, max_tokens: int | None, tiers: bool, stem: str,
        open_grammar_kernel: JsObject,
    ) -> bytes | str:  # fmt: skip
        """Load the model of `stream` (web/backends/weight_stream.js) on a GPU (web/backends/webgpu/executor.js) or on
        the CPU's workers (web/backends/wasm/kernel_pool.js, in this precision), or on numpy without a device.
        templates: web/tokenizers/template_cage.js, where the model's chat template runs. tuning:
        web/storage/tuning_store.js. memory: bytes of this machine, None if unknown; chosen_memory: bytes that the user
        lets the model have instead, None if nothing was chosen. context: the most tokens of a conversation, None for
        the usual number; max_tokens: of an answer. tiers: old keys and values take fewer bits
        (py_core/paging/tiers.py). stem: of the name of the model's file. open_grammar_kernel: of
        web/engine/grammar_kernel.js.

        Returns, as `answer_of`, {backend, adapter, software, features, model, parameters, contextLength, need, fit,
        longestPrompt}. `need`: a sentence on the memory that this context takes; `fit`: of `fit_facts`.
        """

        async def load() -> dict[str, Any]:
            loader = loader_of(device, precision, tuning, TierPolicy() if tiers else None)
            told: list[Fitting] = []
            check = fit_check(loader, memory, lambda need, room: told.append(Fitting(need, room)), chosen_memory)
            self._read = partial(read_description, context=context, before_loading=check)
            self._max_tokens = max_tokens or MAX_TOKENS
            source, renderer = BrowserSource(stream), BrowserTemplateRenderer(templates)
            self._model = await load_model(source, loader, renderer, on_progress, context, check, mark_phase)
            self._model.config = replace(self._model.config, name=title_of(self._model.config.name, stem))
            await self._model.engine.limit_memory(told[0].room.memory)
            self._adapters = AnswerAdapters(self._model.engine)
            self._model.engine.constraint_of = grammars_of(self._model, open_grammar_kernel).constraint
            return model_info(self._model, told[0])

        return await answer_of(load())

    async def check_model(self, stream: JsObject, stem: str) -> bytes | str:
        """Check by its header if another model could run instead of this one. stem: of its file's name. Returns, as
        `answer_of`, {title, licence}."""

        async def check() -> dict[str, str]:
            header, config, _ = await self._read(BrowserSource(stream))
            return {"title": title_of(config.name, stem), "licence": licence_of(header.metadata)}

        return await answer_of(check())

    async def import_adapter(self, files: JsObject, base: str, kept: str) -> JsObject:
        """Make an adapter from the files [[name, bytes], ...], for the model that runs, `base` (JSON, {sha256, title}).
        kept: {name: sha256} of the kept adapters, JSON.

        Returns [as `answer_of`, bytes]: its facts {name, rank, linears, lost, sha256} and its file, or None.
        """
        made: bytes | None = None

        async def facts() -> dict[str, Any]:
            nonlocal made
            given = {name: bytes(data) for name, data in files.to_py()}
            about, made = made_of(given, self._running(), json.loads(base), json.loads(kept))
            return about

        return to_js([await answer_of(facts()), made])

    async def forget_adapter(self, name: str) -> None:
        """Forget a deleted adapter: the next answers come without it, and answers that it gives end."""
        for session in self._sessions:
            session.talk.leave_adapter(name)
        if self._adapters is not None:
            await self._adapters.forget(name)

    async def open(self) -> None:
        """Open the memory, then the routing. Never fails: MemoryApi.info tells."""
        await self._runtime.start()

    async def open_learning(self, base_sha256: str, idle_seconds: float) -> None:
        """Let the model that runs be taught. base_sha256: of its file, to which what it learns belongs; "" if that is
        not known. Comes after `start`. Never fails: the runtime tells. It opens once: pages that ask again wait for the
        first call.

        idle_seconds: the seconds without activity after which it may learn (app/consolidation/idle_learning.py).
        """
        if self._opening_learning is None:
            model = self._running()
            reader = FactReader(model, base_sha256, self._reader_file)
            learner = Learner(
                model, base_sha256, self._adapters, only_one=self._one_learner, idle_seconds=idle_seconds, reader=reader
            )
            self._opening_learning = asyncio.ensure_future(self._runtime.use_model(learner))
            await self._opening_learning
            self._tuning = asyncio.ensure_future(tune_in_pauses(model))
        await self._opening_learning

    async def _reader_file(self, name: str) -> bytes:
        return (await self._fetch_reader(name)).to_bytes()

    async def _open_rows(self, memory_store: JsObject) -> IndexedDBRows:
        rows = await IndexedDBRows.open(memory_store)
        if rows.data_loss:
            self._runtime.trouble(StoreError("damaged", LOST))
        return rows

    def _new_assistant(self) -> Assistant:
        return Assistant(self._running(), max_tokens=self._max_tokens, adapters=self._adapters)

    def _running(self) -> Model:
        if self._model is None:
            raise BackendError("engine.not-loaded", "The model is not loaded yet. Wait for `sonata.info`.")
        return self._model


def grammars_of(model: Model, open_kernel: JsObject) -> VocabularyGrammars:
    async def host() -> KernelHost:
        from py_core.grammar.browser_kernel import BrowserGrammarHost  # late: few answers have a grammar

        return BrowserGrammarHost(await open_kernel())

    return VocabularyGrammars(model.tokenizer, model.config.vocab_size, host)


async def tune_in_pauses(model: Model) -> None:
    with suppress(BackendError):  # the next answer tells of a lost device
        await model.engine.tune()


def mark_phase(name: str) -> None:
    """Mark a phase, as web/common/phase.js does."""
    from js import performance  # late: a snapshot of Python holds no object of JavaScript

    performance.mark(f"sonata: {name}")


async def open_router(opening: JsObject) -> RouterParts:
    """opening: as in PageModel. Raises EmbedderError."""
    try:
        parts = await opening
    except JsException as error:
        raise EmbedderError(js_words(error)) from error
    gate = parts.gate.to_bytes() if parts.gate else None
    return RouterParts(browser_embedder(parts.embedder), parts.data.to_bytes(), PyodideHnswKernel(parts.kernel), gate)


def loader_of(
    device: JsObject | None, precision: str, tuning: JsObject | None, tiers: TierPolicy | None = None
) -> BackendLoader:
    """Return the backend's loader for a device: see `PageModel.start`."""
    if device is None:
        return partial(load_numpy, tiers=tiers)
    if hasattr(device, "setWorkers"):
        return partial(load_wasm, BrowserKernelHost(device), precision=precision, tiers=tiers)
    return partial(load_webgpu, BrowserHost(device), tuning=tuning, tiers=tiers)


def model_info(model: Model, fitting: Fitting) -> dict[str, Any]:
    capabilities, context = model.engine.capabilities, model.engine.context_length
    return {
        "backend": capabilities.backend,
        "adapter": capabilities.adapter,
        "software": capabilities.software,
        "features": capabilities.features,
        "model": model.config.name,
        "parameters": model.graph.parameters,
        "diffusion": model.config.diffusion is not None,
        "contextLength": context,
        "need": cost(fitting.need, context),
        "fit": fit_facts(fitting, context),
        "longestPrompt": context * model.tokenizer.longest_token or None,
    }
