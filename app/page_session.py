"""One page of the model: its own conversation, which another page neither stops nor sees (app/worker.py).

Several pages are answered at once: the engine's scheduler lets their answers take turns. Only strings and numbers go
back, as JSON where there are several.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from app.answer_keeper import Stored
from app.assistant import Assistant, Delta, Done, Reading, Thought
from app.bench import profile_report
from app.completion import complete, last_logits
from app.conversation import Conversation, Event
from app.exact_answers import Computed
from app.file_consulting import Consulted
from app.files_api import FilesApi
from app.learning_api import LearningApi
from app.learning_service import Learned
from app.memory_api import MemoryApi
from app.memory_talk import Card, Offered
from app.page_adapters import choose
from app.page_calls import PageCalls, describe
from app.prompt_window import Context
from app.recalled import Recalled
from app.routing_service import Routed, route_entry
from app.services import Services
from app.turn_details import context_entry, done_entry, reading_entry, taught_details, turn_entries
from py_core.adapters.lora import LoraAdapter
from py_core.backends.base import BackendError
from py_core.loading import Model
from py_core.memory.lessons import Lesson
from py_core.sampling import SamplingParams

if TYPE_CHECKING:
    import numpy as np

    from app.lesson_trial import LessonTrial

JsObject = Any
OnEvent = Callable[[str, str], None]

ROUTING_PATIENCE = 4.0
"""Seconds that a message waits for the router and the lessons to be loaded; then the plain assistant answers it."""
PROFILE_POSITION = 512  # of the token whose kernels are measured: some way into a conversation


@dataclass(frozen=True)
class Opened:
    """What answers wait for: set once it is open, or it is known that it will not be."""

    memory: asyncio.Event = field(default_factory=asyncio.Event)
    routing: asyncio.Event = field(default_factory=asyncio.Event)
    learning: asyncio.Event = field(default_factory=asyncio.Event)


class PageSession:
    """What one page asks of the model."""

    def __init__(self, services: Services, opened: Opened, new_assistant: Callable[[], Assistant]) -> None:
        """new_assistant: over the model that runs; raises BackendError where none does yet."""
        self._services, self._opened, self._new_assistant = services, opened, new_assistant
        self._conversation: Conversation | None = None
        self._learning = LearningApi(services, self._leaves_out, self._adapter, self._leave_out)
        self._trial: LessonTrial | None = None
        self._calls = PageCalls(
            {"memory": MemoryApi(services), "learning": self._learning, "files": FilesApi(services.files)}
        )
        self._turns = 0
        self._stopped_turns = 0
        self._turn = asyncio.Lock()
        self._profiling: asyncio.Task[dict[str, Any]] | None = None

    async def use_adapter(self, name: str, base_sha256: str, read: Callable[[], Any]) -> str:
        """Answer with an adapter from the next message on, without one where `name` is "". `read` gives its file, if
        that is needed; base_sha256: of the model that runs. Returns JSON, {note} or {error};
        note: a sentence on what is left out for it, or ""."""

        async def file() -> bytes:
            return (await read()).to_bytes()

        try:
            note = await choose(self.talk().assistant, name, base_sha256, file)
        except Exception as error:
            return json.dumps({"error": describe(error)})
        return json.dumps({"note": note})

    def leave_adapter(self, name: str) -> None:
        """It is about to be forgotten: an answer that it gives ends."""
        if self._conversation is not None:
            self._conversation.assistant.leave_adapter(name)

    async def ask(self, api: str, call: str, arguments: str, data: JsObject | None = None) -> bytes | str:
        """What an api of the services answers: see PageCalls. `data`: bytes."""
        return await self._calls.answer(api, call, arguments, None if data is None else data.to_bytes())

    async def resume(self, session_id: str) -> str:
        """Continue a stored conversation, after the running answer, once the memory is open.

        Returns JSON, {value: turns} (turn_details.turn_entries) or {error}.
        """
        self.stop()
        await self._opened.memory.wait()
        async with self._turn:
            try:
                branches = await self.talk().resume(session_id)
            except Exception as error:
                return json.dumps({"error": describe(error)})
        return json.dumps({"value": turn_entries(branches)})

    async def respond(self, text: str, on_event: OnEvent, asked: str = "{}") -> None:
        """Stream the answer: on_event("route", JSON) if it was routed, ("lesson", JSON) if a lesson answers,
        ("computed", JSON) if a tool does, ("learned", JSON) ... for what a message taught, ("card", JSON) with lessons
        that were asked for, ("files", JSON) if it reads attached files, ("context", JSON) with what is in the prompt,
        ("reading", JSON) ... while it reads a long one, ("thought", JSON) ... of a model that thinks before it answers,
        ("delta", text) ..., then ("done" or "error", JSON),
        ("stored", JSON) once the memory has the turn, and ("offered", JSON) if the message told what may be remembered.

        asked: JSON, see Engine.respond in web/engine/engine.js. With {again} or {goesOn} `text` is not used.
        """
        self._turns += 1
        turn = self._turns
        async with self._turn:  # the page may ask again before an answer that it stopped has ended
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUTING_PATIENCE):
                        await self._opened.routing.wait()
                        await self._opened.learning.wait()
                if turn <= self._stopped_turns:
                    on_event("done", json.dumps(done_entry(Done("stopped"))))
                    return
                given = json.loads(asked)
                async for event in _events(self.talk(), text, given):
                    if isinstance(event, Delta):
                        on_event("delta", event.text)
                    elif isinstance(event, Thought):
                        on_event("thought", json.dumps({"text": event.text}))
                    elif isinstance(event, Learned):
                        on_event("learned", json.dumps(taught_details(event)))
                    elif isinstance(event, Card):
                        if event.kind == "forgotten":
                            self._learning.note_forgotten(event.lessons)
                        on_event("card", json.dumps(event.entry()))
                    elif isinstance(event, Offered):
                        on_event("offered", json.dumps(event.entry()))
                    elif isinstance(event, Routed):
                        on_event("route", json.dumps(route_entry(event)))
                    elif isinstance(event, Recalled):
                        on_event("lesson", json.dumps(event.entry()))
                    elif isinstance(event, Computed):
                        on_event("computed", json.dumps(event.entry()))
                    elif isinstance(event, Consulted):
                        on_event("files", json.dumps(event.material.entry()))
                    elif isinstance(event, Context):
                        on_event("context", json.dumps(context_entry(event)))
                    elif isinstance(event, Reading):
                        on_event("reading", json.dumps(reading_entry(event)))
                    elif isinstance(event, Done):
                        on_event("done", json.dumps(done_entry(event, whole=bool(given.get("goesOn")))))
                    elif isinstance(event, Stored):
                        told = {"chat": event.session, "turns": event.turns}
                        told |= {"answer": event.answer, "request": event.request}
                        told |= {"question": event.question, "number": event.number}
                        on_event("stored", json.dumps(told))
                    # ChangedElsewhere: the page looks into the memory by itself.
            except Exception as error:
                on_event("error", json.dumps(describe(error)))

    def stop(self) -> None:
        """End every answer asked for so far."""
        self._stopped_turns = self._turns
        if self._conversation is not None:
            self._conversation.stop()

    async def try_lesson(self, id: str, learned: bool, on_event: OnEvent) -> None:
        """Ask a lesson's question beside the conversation: app/lesson_trial.py. Events as of `respond`: "lesson",
        "delta" ..., then "done" or "error". One at a time: the one before ends."""
        from app.lesson_trial import LessonTrial  # late, as in app/services.py

        self.stop_trial()
        try:
            trial = self._trial = LessonTrial(self._services, self._new_assistant, self._model())
            async for event in trial.ask(id, learned):
                if isinstance(event, Recalled):
                    on_event("lesson", json.dumps(event.entry()))
                elif isinstance(event, Delta):
                    on_event("delta", event.text)
                else:
                    on_event("done", json.dumps(done_entry(event, whole=True)))
        except Exception as error:
            on_event("error", json.dumps(describe(error)))

    def stop_trial(self) -> None:
        """End the answer of `try_lesson`, if one runs."""
        if self._trial is not None:
            self._trial.stop()

    async def new_chat(self) -> None:
        """End every answer asked for so far, and forget the conversation."""
        self.stop()
        async with self._turn:
            if self._conversation is not None:
                self._conversation.reset()

    async def generate(self, prompt: str, raw: bool, max_tokens: int, temperature: float, seed: int) -> str:
        """For developers: one prompt beside the conversation. Returns app.completion.Completion as JSON."""
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

    def memory_use(self) -> str:
        """What the model's memory holds now: MemoryUse.facts as JSON."""
        return json.dumps(self._model().engine.memory().facts())

    async def logits(self, prompt: str, raw: bool) -> np.ndarray[Any, Any]:
        """For developers: the logits after a prompt's last token, (vocab_size,)."""
        async with self._turn:
            return await last_logits(self._model(), prompt, raw=raw)

    def talk(self) -> Conversation:
        """This page's conversation. Raises BackendError where no model runs yet."""
        if self._conversation is None:
            self._conversation = Conversation(self._new_assistant(), self._services)
        return self._conversation

    async def close(self) -> None:
        """The page is gone: end its answers, and give back what the model keeps of its conversation."""
        self.stop()
        self.stop_trial()
        self.stop_profile()
        async with self._turn:
            self._learning.close()
            if self._conversation is not None:
                self._conversation.close()

    async def _leave_out(self, lessons: Sequence[Lesson]) -> None:
        if self._conversation is not None:
            await self._conversation.leave_out(lessons)

    def _leaves_out(self) -> str:
        return self._conversation.assistant.leaves_out if self._conversation is not None else ""

    def _adapter(self) -> LoraAdapter | None:
        return self._conversation.assistant.adapter if self._conversation is not None else None

    def _model(self) -> Model:
        return self.talk().assistant.model


def _events(talk: Conversation, text: str, asked: dict[str, Any]) -> AsyncIterator[Event]:
    if "choice" in asked:
        talk.choose_agent(asked["choice"])
    if asked.get("goesOn"):
        return talk.continue_answer()
    if asked.get("again"):
        return talk.retry(asked.get("after"), agent=asked.get("agent"))
    return talk.respond(text, after=asked.get("after", "leaf"), agent=asked.get("agent"))
