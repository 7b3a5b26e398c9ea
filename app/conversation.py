"""A conversation that is routed and stored: each message goes to an agent, and the turns are kept.

conversation = Conversation(assistant, services)    # without a memory or a router it works, too
async for event in conversation.respond("why does my page crash"):   # Routed, then Delta ..., then Done
    ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any

from app.assistant import Assistant, Delta, Done
from app.routing_service import Routed
from app.services import Services
from py_core.memory.errors import StoreError
from py_core.memory.memory import Memory
from py_core.memory.sessions import Session, Turn
from py_core.memory.witness import WitnessEntry
from py_core.routing.embedder import EmbedderError

Event = Routed | Delta | Done

TITLE_LENGTH = 80
KEPT_TEXT = 500
"""Characters of a message in the witness log."""
NEIGHBOURS_LOGGED = 3


class Conversation:
    """One at a time with one assistant. A failure of the memory or the router is told to the services, never raised."""

    def __init__(self, assistant: Assistant, services: Services) -> None:
        self.assistant = assistant
        self._services = services
        self._stopped = False
        self._session: Session | None = None
        self._last: Routed | None = None
        self._resumed_agent: str | None = None  # who answered last, in a conversation of before

    async def respond(self, text: str) -> AsyncIterator[Event]:
        """Raises what Assistant.respond raises. What is to be remembered is stored after Done."""
        self._stopped = False
        routed = await self._route(text)
        if routed is not None:
            yield routed
        if self._stopped:
            yield Done("stopped", 0, 0, 0.0, 0.0)
            return
        answer, done, failure = "", None, None
        try:
            answering = self.assistant.respond(text, routed.agent if routed else None)
            with self._services.memory.background.paused() if self._services.memory else nullcontext():
                async with aclosing(answering) as events:  # type: ignore[type-var]
                    async for event in events:
                        if isinstance(event, Delta):
                            answer += event.text
                        else:
                            done = event
                        yield event
        except Exception as error:
            failure = error
            raise
        finally:
            await self._remember(text, answer, routed, done, failure)

    def stop(self) -> None:
        """End the running answer, also before it has begun."""
        self._stopped = True
        self.assistant.stop()

    def reset(self) -> None:
        """Start a new conversation; the old one stays in the memory."""
        self.assistant.reset()
        self._session = self._last = self._resumed_agent = None

    async def resume(self, session_id: str) -> list[Turn]:
        """Go on with a stored conversation. Raises StoreError when it is not there."""
        session = await self._services.memory.sessions.get(session_id) if self._services.memory else None
        if self._services.memory is None or session is None:
            raise StoreError("record", "This conversation was deleted.")
        turns = await self._services.memory.sessions.turns(session_id)
        self.assistant.reset([{"role": turn.role, "content": turn.content} for turn in turns])
        self._session = session
        self._last = None
        agent = session.state.get("agent")
        self._resumed_agent = agent if isinstance(agent, str) else None
        return turns

    async def _route(self, text: str) -> Routed | None:
        if self._services.routing is None or not text.strip():
            return None
        try:
            agent = self._resumed_agent if self._last is None else self._services.routing.agent_of(self._last)
            self._last = await self._services.routing.route(text, agent)
            return self._last
        except (EmbedderError, StoreError) as error:
            self._services.trouble(error)
            return None

    async def _remember(
        self, text: str, answer: str, routed: Routed | None, done: Done | None, failure: Exception | None
    ) -> None:
        if self._services.memory is None or not text.strip():
            return
        try:
            self._services.memory.witness.record(self._entry(text, routed, done, failure))
            if answer:
                await self._keep_turns(self._services.memory, text, answer, routed)
                if routed is not None and self._services.routing is not None:
                    await self._services.routing.used(routed)
        except StoreError as error:
            self._services.trouble(error)

    def _entry(self, text: str, routed: Routed | None, done: Done | None, failure: Exception | None) -> WitnessEntry:
        stages: dict[str, float] = dict(routed.decision.milliseconds) if routed else {}
        if done is not None:
            stages |= {"prefill": 1000 * done.prefill_seconds, "decode": 1000 * done.decode_seconds}
        routing: dict[str, Any] = {"text": text[:KEPT_TEXT]}
        if routed is not None:
            routing["why"] = routed.decision.reason
            routing["confidence"] = routed.decision.confidence
            routing["ranked"] = [list(pair) for pair in routed.decision.ranked[:NEIGHBOURS_LOGGED]]
            routing["neighbours"] = [n.pattern_id for n in routed.decision.neighbours[:NEIGHBOURS_LOGGED]]
        if done is not None:
            routing |= {"reason": done.reason, "tokens": done.new_tokens}
        return WitnessEntry(
            agent=routed.agent.id if routed else "",
            backend=self.assistant.model.engine.capabilities.backend,
            stages=stages,
            routing=routing,
            error=None if failure is None else f"{type(failure).__name__}: {failure}",
            vector=routed.vector if routed else None,
            id=routed.id if routed else "",
        )

    async def _keep_turns(self, memory: Memory, text: str, answer: str, routed: Routed | None) -> None:
        changes: dict[str, Any] = {}
        details: dict[str, Any] = {}
        if routed is not None:
            changes["state"] = {"agent": routed.agent.id}
            details = {"agent": routed.agent.id, "request": routed.id}
        turns = Turn("user", text), Turn("assistant", answer, details=details)
        if self._session is not None:
            try:
                self._session = await memory.sessions.add_turns(self._session.id, *turns, **changes)
                return
            except StoreError as error:
                if error.reason != "record":
                    raise  # otherwise it was deleted meanwhile: what is said now begins another
        session = await memory.sessions.start(" ".join(text.split())[:TITLE_LENGTH])
        self._session = await memory.sessions.add_turns(session.id, *turns, **changes)
