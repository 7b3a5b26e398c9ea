"""One page of the model: its own conversation, which another page neither stops nor sees (app/page/worker.py).

Several pages are answered at once: the engine's scheduler lets their answers take turns. Only strings and numbers go
back, as JSON where there are several.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.chat.conversation import Conversation
from app.chat.turn_events import stored_turns
from app.consolidation.api import LearningApi
from app.files.api import FilesApi
from app.generation.assistant import Assistant
from app.generation.completion import complete, last_logits
from app.generation.speed import profile_report
from app.generation.stop_token import StopToken
from app.memory.api import MemoryApi
from app.page.adapters import choose
from app.page.calls import PageCalls, describe, failure_of
from app.protocol import Card, Done, Event, to_json
from app.runtime import Runtime
from py_core.adapters.lora import LoraAdapter
from py_core.backends.base import BackendError
from py_core.loading import Model
from py_core.memory.lessons import Lesson
from py_core.messages import Words
from py_core.sampling import SamplingParams

if TYPE_CHECKING:
    import numpy as np

    from app.lessons.trial import LessonTrial

JsObject = Any
OnEvent = Callable[[str], None]

ROUTING_PATIENCE = 4.0
"""Seconds that a message waits for the router and the lessons to be loaded; then the plain assistant answers it."""
PROFILE_POSITION = 512  # of the token whose kernels are measured: some way into a conversation


class PageSession:
    """What one page asks of the model."""

    def __init__(self, runtime: Runtime, new_assistant: Callable[[], Assistant]) -> None:
        """new_assistant: over the model that runs; raises BackendError where none does yet."""
        self._runtime, self._new_assistant = runtime, new_assistant
        self._conversation: Conversation | None = None
        self._learning = LearningApi(runtime, self._leaves_out, self._adapter, self._leave_out)
        self._trial: LessonTrial | None = None
        self._calls = PageCalls(
            {"memory": MemoryApi(runtime), "learning": self._learning, "files": FilesApi(runtime.files)}
        )
        self._asked: set[StopToken] = set()
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
        return json.dumps({"note": to_json(note)})

    def leave_adapter(self, name: str) -> None:
        """It is about to be forgotten: an answer that it gives ends."""
        if self._conversation is not None:
            self._conversation.assistant.leave_adapter(name)

    async def ask(self, api: str, call: str, arguments: str, data: JsObject | None = None) -> bytes | str:
        """What an api of the runtime answers: see PageCalls. `data`: bytes."""
        return await self._calls.answer(api, call, arguments, None if data is None else data.to_bytes())

    async def resume(self, session_id: str) -> str:
        """Continue a stored conversation, after the running answer, once the memory is open.

        Returns JSON, {value: turns} (turn_events.stored_turns) or {error}.
        """
        self.stop()
        await self._runtime.memory_stage.wait()
        async with self._turn:
            try:
                branches = await self.talk().resume(session_id)
            except Exception as error:
                return json.dumps({"error": describe(error)})
        return json.dumps({"value": to_json(stored_turns(session_id, branches))})

    async def respond(self, text: str, on_event: OnEvent, asked: str = "{}") -> None:
        """Stream the answer as events (app/protocol.py), each as JSON.

        asked: JSON, see Engine.respond in web/engine/engine.js. With {again} or {goesOn} `text` is not used.
        """
        stop, tell = StopToken(), _telling(on_event)
        self._asked.add(stop)
        async with self._turn:  # the page may ask again before an answer that it stopped has ended
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUTING_PATIENCE):
                        await self._runtime.routing_stage.wait()
                        await self._runtime.learning_stage.wait()
                if stop.is_stopped:
                    return tell(Done("stopped"))
                given = json.loads(asked)
                async for event in _events(self.talk(), text, given, stop):
                    if isinstance(event, Card) and event.kind == "forgotten":
                        self._learning.note_forgotten(event.originals)
                    tell(event)
            except Exception as error:
                tell(failure_of(error))
            finally:
                self._asked.discard(stop)

    def stop(self) -> None:
        """End every answer asked for so far."""
        for asked in self._asked:
            asked.stop()

    async def try_lesson(self, id: str, learned: bool, on_event: OnEvent) -> None:
        """Ask a lesson's question beside the conversation: app/lessons/trial.py. Events as of `respond`. One at a
        time: the one before ends."""
        from app.lessons.trial import LessonTrial  # late, as in app/runtime.py

        self.stop_trial()
        tell = _telling(on_event)
        try:
            trial = self._trial = LessonTrial(self._runtime, self._new_assistant, self._model())
            async for event in trial.ask(id, learned):
                tell(event)
        except Exception as error:
            tell(failure_of(error))

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
        """For developers: one prompt beside the conversation. Returns app.generation.completion.Completion as JSON."""
        sampling = SamplingParams(temperature=temperature, seed=seed)
        done = await complete(self._model(), prompt, raw=raw, max_tokens=max_tokens, sampling=sampling)
        return json.dumps(asdict(done))

    async def profile(self, on_progress: Callable[[float], None]) -> str:
        """Measure each kernel of a token, after the running answer: profile_report (app/generation/speed.py) as JSON,
        or {error}.

        on_progress gets what is done, from 0, when its turn has come, to 1.
        """
        self.stop_profile()
        self._profiling = asyncio.ensure_future(self._profile(on_progress))
        try:
            return json.dumps(await self._profiling)
        except asyncio.CancelledError:
            return json.dumps(
                {"error": describe(BackendError("engine.measurement-stopped", "The measurement was stopped."))}
            )
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
            self._conversation = Conversation(self._new_assistant(), self._runtime)
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

    def _leaves_out(self) -> Words:
        return self._conversation.assistant.leaves_out if self._conversation is not None else ""

    def _adapter(self) -> LoraAdapter | None:
        return self._conversation.assistant.adapter if self._conversation is not None else None

    def _model(self) -> Model:
        return self.talk().assistant.model


def _telling(on_event: OnEvent) -> Callable[[Event], None]:
    return lambda event: on_event(json.dumps(to_json(event)))


def _events(talk: Conversation, text: str, asked: dict[str, Any], stop: StopToken) -> AsyncIterator[Event]:
    if "choice" in asked:
        talk.choose_agent(asked["choice"])
    if asked.get("goesOn"):
        return talk.continue_answer(stop=stop)
    if asked.get("again"):
        return talk.retry(asked.get("after"), agent=asked.get("agent"), stop=stop)
    return talk.respond(text, after=asked.get("after", "leaf"), agent=asked.get("agent"), stop=stop)
