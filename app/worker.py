"""The Pyodide entry: the assistant behind messages.

web/engine/worker.js makes one PageWorker and calls it. Only strings and numbers go back, as JSON where there are
several, so that no proxy has to be destroyed on either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from pyodide.ffi import JsException, to_js

from app.assistant import MAX_TOKENS, Assistant, Delta, Done, Reading, Thought
from app.bench import profile_report
from app.completion import complete, last_logits
from app.conversation import Conversation, Stored
from app.fact_reader import FactReader
from app.fit_check import fit_check
from app.idle_learning import IDLE_SECONDS
from app.learning_api import LearningApi
from app.learning_service import Learned, LearningService
from app.memory_api import MemoryApi
from app.one_learner import TabLock
from app.page_adapters import PageAdapters
from app.page_calls import PageCalls, describe
from app.recalled import Recalled
from app.routing_service import Routed, RoutingService, route_entry
from app.services import Services
from app.shipped_gate import shipped_gate
from app.turn_details import done_entry, taught_details, turn_entries
from py_core.backends.base import BackendError
from py_core.backends.browser_source import BrowserSource
from py_core.backends.numpy import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_browser import BrowserKernelHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_browser import BrowserHost
from py_core.hnsw.wasm_kernel import PyodideHnswKernel
from py_core.loading import BackendLoader, Model, load_model, read_description
from py_core.memory.encryption_browser import BrowserCrypto
from py_core.memory.errors import StoreError
from py_core.memory.indexeddb import IndexedDBRows
from py_core.memory.memory import Memory
from py_core.routing.embedder import EmbedderError
from py_core.routing.embedder_browser import browser_embedder
from py_core.sampling import SamplingParams
from py_core.tokenizers.template_renderer_browser import BrowserTemplateRenderer

JsObject = Any
OnEvent = Callable[[str, str], None]

LOST = "The browser found Sonata's memory damaged and threw it away. If you have an export, import it under Memory."
ROUTING_PATIENCE = 4.0
"""Seconds that a message waits for the router and the lessons to be loaded; then the plain assistant answers it."""
NO_EMBEDDER = (
    "Nothing can be taught without the sentence embedder, which routing loads: open the page without ?routing=off, or "
    "reload it."
)
NAMELESS_MODEL = (
    "Nothing can be taught to a model that the browser does not keep: what it learns belongs to its file. Open it "
    "under Models."
)
PROFILE_POSITION = 512  # of the token whose kernels are measured: some way into a conversation


class PageWorker:
    """One assistant for one page."""

    def __init__(
        self, derive_cipher: JsObject, on_memory: Callable[[], None], one_learner: JsObject, fetch_reader: JsObject
    ) -> None:
        """derive_cipher: of web/memory/encryption.js. on_memory: called when the memory or the router changed.
        one_learner: of web/learning/one_learner.js. fetch_reader: the site's file of a reader (app/fact_reader.py) by
        its name, as a promise."""
        self._fetch_reader = fetch_reader
        self._one_learner = TabLock(one_learner)
        self._kernel: PyodideHnswKernel | None = None
        self._services = Services(BrowserCrypto(derive_cipher), on_memory, lambda: self._kernel)
        learning = LearningApi(self._services, lambda: self._adapters.leaves_out)
        self._calls = PageCalls({"memory": MemoryApi(self._services), "learning": learning})
        self._conversation: Conversation | None = None
        self._read = partial(read_description, context=None, before_loading=lambda header, config, graph: None)
        self._memory_opened, self._routing_opened = asyncio.Event(), asyncio.Event()
        self._learning_opened = asyncio.Event()
        self._learning_opened.set()  # nobody waits for what was not asked for
        self._turns = 0
        self._stopped_turns = 0
        self._turn = asyncio.Lock()
        self._profiling: asyncio.Task[dict[str, Any]] | None = None
        self._adapters = PageAdapters(lambda: self._talk().assistant)

    async def start(
        self,
        device: JsObject | None,
        stream: JsObject,
        templates: JsObject,
        on_progress: Callable[[int, int], None],
        precision: str = "precise",
        tuning: JsObject | None = None,
        memory: int | None = None,
        context: int | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> str:
        """Load the model of `stream` (web/backends/weight_stream.js) on a GPU (web/backends/webgpu/executor.js) or on
        the CPU's workers (web/backends/wasm/kernel_pool.js, in this precision), or on numpy without a device.
        templates: web/tokenizers/template_cage.js, where the model's chat template runs.
        tuning: web/storage/tuning_store.js. memory: bytes of this machine, None if unknown.
        context: the most tokens of a conversation, None for the usual number.

        Returns JSON: {backend, adapter, software, features, model, contextLength, need, longestPrompt} or
        {error: {kind, message, details}}.
        """
        try:
            loader = loader_of(device, precision, tuning)
            told: list[str] = []
            check = fit_check(loader, memory, told.append)
            self._read = partial(read_description, context=context, before_loading=check)
            model = await load_model(
                BrowserSource(stream), loader, BrowserTemplateRenderer(templates), on_progress, context, check
            )
            self._conversation = Conversation(Assistant(model, max_tokens=max_tokens), self._services)
            return info_json(model, told[0] if context is not None else None)
        except Exception as error:
            return json.dumps({"error": describe(error)})

    async def check_model(self, stream: JsObject) -> str:
        """Whether another model could run in place of this one, by its header. Returns JSON, {} or {error}."""
        try:
            await self._read(BrowserSource(stream))
        except Exception as error:
            return json.dumps({"error": describe(error)})
        return "{}"

    async def import_adapter(self, files: JsObject, base: str, kept: str) -> JsObject:
        """An adapter of the files [[name, bytes], ...], for the model that runs, `base` (JSON, {sha256, title}).
        kept: {name: sha256} of those that are kept, JSON.

        Returns [JSON, bytes]: {facts: {name, rank, linears, lost, sha256}} and its file, or {error} and None.
        """
        try:
            given = {name: bytes(data) for name, data in files.to_py()}
            facts, made = self._adapters.made_of(given, json.loads(base), json.loads(kept))
            return to_js([json.dumps({"facts": facts}), made])
        except Exception as error:
            return to_js([json.dumps({"error": describe(error)}), None])

    async def use_adapter(self, name: str, base_sha256: str, read: Callable[[], Any]) -> str:
        """Answer with an adapter from the next message on, without one where `name` is "". `read` gives its file, if
        that is needed; base_sha256: of the model that runs. Returns JSON, {note} or {error};
        note: a sentence on what is left out for it, or ""."""

        async def file() -> bytes:
            return (await read()).to_bytes()

        try:
            note = await self._adapters.use(name, base_sha256, file)
        except Exception as error:
            return json.dumps({"error": describe(error)})
        return json.dumps({"note": note})

    async def forget_adapter(self, name: str) -> None:
        """It was deleted: an answer that it gives ends."""
        if self._conversation is not None:
            await self._adapters.forget(name)

    async def open_memory(self, memory_store: JsObject) -> None:
        """Open what is remembered: memoryStore of web/memory/indexeddb.js. Never fails: MemoryApi.info tells."""
        await self._services.open(lambda: self._open_rows(memory_store))
        self._memory_opened.set()

    async def open_routing(self, opening: JsObject | None) -> None:
        """opening: a promise of {embedder, kernel, data}: web/routing/embedder.js, web/routing/hnsw_kernel.js and
        routing.safetensors. Without it there is no routing.

        Comes after `open_memory`. Never fails: MemoryApi.info tells.
        """
        if opening is None:
            self._services.routing_state = "off"
        else:
            await self._services.route_with(lambda memory: self._open_routing(opening, memory))
        self._routing_opened.set()

    async def open_learning(self, base_sha256: str, idle_seconds: float = IDLE_SECONDS) -> None:
        """Let the model that runs be taught: base_sha256 is of its file, to which what it learns belongs; "" where that
        is not known. Comes after `start`, and waits for the memory and the routing. Never fails: Services tells.

        idle_seconds: after so many in which nobody did anything it may learn (app/idle_learning.py).
        """
        self._learning_opened.clear()
        try:
            await self._routing_opened.wait()
            await self._open_learning(base_sha256)
        finally:
            self._learning_opened.set()
        from app.idle_loops import idle_loops  # late, as in app/services.py

        services, hold = self._services, self._model().engine.idle_held
        await services.learn_idly(idle_loops(services), hold, self._one_learner, idle_seconds)

    async def _open_learning(self, base_sha256: str) -> None:
        services, routing = self._services, self._services.routing
        if routing is None:
            services.learn_nothing(NO_EMBEDDER)
        elif not base_sha256:
            services.learn_nothing(NAMELESS_MODEL)
        else:
            model = self._model()
            reader = FactReader(model, base_sha256, self._reader_file)
            await services.learn_with(
                lambda memory: LearningService.open(
                    model, base_sha256, routing.embedder, memory, shipped_gate(), reader
                )
            )
            assistant = self._talk().assistant
            await services.consolidate_with(assistant.adapters, assistant.use_learned)
            await services.style_with(assistant.use_style)

    async def _reader_file(self, name: str) -> bytes:
        return (await self._fetch_reader(name)).to_bytes()

    def note_activity(self) -> None:
        """Somebody does something, here or in another tab."""
        if self._services.idle is not None:
            self._services.idle.note_activity()

    def note_battery(self, level: float, charging: bool) -> None:
        """level: 0 to 1."""
        if self._services.idle is not None:
            self._services.idle.note_battery(level, charging)

    async def ask(self, api: str, call: str, arguments: str, data: JsObject | None = None) -> JsObject | str:
        """What an api of the services answers: see PageCalls. `data`: bytes."""
        answer = await self._calls.answer(api, call, arguments, None if data is None else data.to_bytes())
        return to_js(answer) if isinstance(answer, bytes) else answer

    async def resume(self, session_id: str) -> str:
        """Continue a stored conversation, after the running answer, once the memory is open.

        Returns JSON, {value: turns} (turn_details.turn_entries) or {error}.
        """
        self.stop()
        await self._memory_opened.wait()
        async with self._turn:
            try:
                turns = await self._talk().resume(session_id)
            except Exception as error:
                return json.dumps({"error": describe(error)})
        return json.dumps({"value": turn_entries(turns)})

    async def _open_rows(self, memory_store: JsObject) -> IndexedDBRows:
        rows = await IndexedDBRows.open(memory_store)
        if rows.data_loss:
            self._services.trouble(StoreError("damaged", LOST))
        return rows

    async def _open_routing(self, opening: JsObject, memory: Memory) -> RoutingService:
        try:
            parts = await opening
        except JsException as error:
            raise EmbedderError(error.message) from error
        self._kernel = PyodideHnswKernel(parts.kernel)
        embedder = browser_embedder(parts.embedder)
        return await RoutingService.open(embedder, parts.data.to_bytes(), memory, self._kernel)

    async def respond(self, text: str, on_event: OnEvent, again: bool = False) -> None:
        """Stream the answer: on_event("route", JSON) if it was routed, ("lesson", JSON) if a lesson answers,
        ("reading", JSON) ... while it reads a long prompt, ("thought", JSON) ... of a model that thinks before it
        answers, ("delta", text) ..., then ("done" or "error", JSON), and ("stored", JSON) once the memory has the turn.

        again: another answer to the last message, in place of the one there is; `text` is not used.
        """
        self._turns += 1
        turn = self._turns
        async with self._turn:  # the page may ask again before an answer that it stopped has ended
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUTING_PATIENCE):
                        await self._routing_opened.wait()
                        await self._learning_opened.wait()
                if turn <= self._stopped_turns:
                    on_event("done", json.dumps(done_entry(Done("stopped"))))
                    return
                talk = self._talk()
                async for event in talk.retry() if again else talk.respond(text):
                    if isinstance(event, Delta):
                        on_event("delta", event.text)
                    elif isinstance(event, Thought):
                        on_event("thought", json.dumps({"text": event.text}))
                    elif isinstance(event, Learned):
                        on_event("learned", json.dumps(taught_details(event)))
                    elif isinstance(event, Routed):
                        on_event("route", json.dumps(route_entry(event)))
                    elif isinstance(event, Recalled):
                        on_event("lesson", json.dumps(event.entry()))
                    elif isinstance(event, Reading):
                        on_event("reading", json.dumps({"done": event.tokens_read, "total": event.prompt_tokens}))
                    elif isinstance(event, Done):
                        on_event("done", json.dumps(done_entry(event)))
                    elif isinstance(event, Stored):
                        told = {"chat": event.session, "turns": event.turns}
                        told |= {"answer": event.answer, "request": event.request}
                        on_event("stored", json.dumps(told))
                    # ChangedElsewhere: the page looks into the memory by itself.
            except Exception as error:
                on_event("error", json.dumps(describe(error)))

    def stop(self) -> None:
        """End every answer asked for so far."""
        self._stopped_turns = self._turns
        if self._conversation is not None:
            self._conversation.stop()

    async def new_chat(self) -> None:
        """End every answer asked for so far, and forget the conversation."""
        self.stop()
        async with self._turn:
            if self._conversation is not None:
                self._conversation.reset()

    async def generate(self, prompt: str, raw: bool, max_tokens: int, temperature: float, seed: int) -> str:
        """For developers: one prompt beside the conversation. Returns app.completion.Completion as JSON."""
        async with self._turn:
            sampling = SamplingParams(temperature=temperature, seed=seed)
            done = await complete(self._model(), prompt, raw=raw, max_tokens=max_tokens, sampling=sampling)
        return json.dumps(asdict(done))

    async def profile(self, on_progress: Callable[[float], None]) -> str:
        """Measure each kernel of a token, after the running answer: app.bench.profile_report as JSON, or {error}.

        on_progress gets what is done, from 0, when its turn has come, to 1.
        """
        self.stop_profile()
        self._profiling = asyncio.ensure_future(self._profile(on_progress))
        try:
            return json.dumps(await self._profiling)
        except asyncio.CancelledError:
            return json.dumps({"error": describe(BackendError("The measurement was stopped."))})
        except Exception as error:
            return json.dumps({"error": describe(error)})

    def stop_profile(self) -> None:
        """End the measurement that is running, if any."""
        if self._profiling is not None:
            self._profiling.cancel()

    async def _profile(self, on_progress: Callable[[float], None]) -> dict[str, Any]:
        async with self._turn:
            on_progress(0.0)
            model = self._model()
            position = min(PROFILE_POSITION, model.engine.context_length // 2)
            return await profile_report(model, [(position, 1)], on_progress)

    async def logits(self, prompt: str, raw: bool) -> JsObject:
        """For developers: the logits after a prompt's last token, a Float32Array (vocab_size)."""
        async with self._turn:
            return to_js(await last_logits(self._model(), prompt, raw=raw))

    def _model(self) -> Model:
        return self._talk().assistant.model

    def _talk(self) -> Conversation:
        if self._conversation is None:
            raise BackendError("The model is not loaded yet. Wait for `sonata.info`.")
        return self._conversation


def loader_of(device: JsObject | None, precision: str, tuning: JsObject | None) -> BackendLoader:
    """The backend for a device: see `WorkerApi.start`."""
    if device is None:
        return load_numpy
    if hasattr(device, "setWorkers"):
        return partial(load_wasm, BrowserKernelHost(device), precision=precision)
    return partial(load_webgpu, BrowserHost(device), tuning=tuning)


def info_json(model: Model, need: str | None) -> str:
    """`need`: a sentence on the memory that a context takes that was asked for."""
    capabilities = model.engine.capabilities
    return json.dumps(
        {
            "backend": capabilities.backend,
            "adapter": capabilities.adapter,
            "software": capabilities.software,
            "features": capabilities.features,
            "model": model.config.name,
            "contextLength": model.engine.context_length,
            "need": need,
            "longestPrompt": model.engine.context_length * model.tokenizer.longest_token or None,
        }
    )
