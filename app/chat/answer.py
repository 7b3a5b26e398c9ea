"""An answer: how it is said, and what is kept of it (the details of its turn, and its trajectory)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from app.generation.assistant import Assistant
from app.lessons.match import LessonMatch
from app.protocol import (
    AnswerEvent,
    Card,
    Citations,
    Computation,
    Context,
    Delta,
    Done,
    Event,
    Taught,
    Thought,
    ToolCalled,
    ToolReturned,
    to_json,
)
from app.routing.service import Routed
from py_core.learning.trajectories import Trajectory
from py_core.routing.agents import FALLBACK_ID
from py_core.store.records import LONGEST_NAME

NEIGHBOURS_LOGGED = 3
RANKED_KEPT = 5
"""The most agents of a route that a turn keeps."""


@dataclass
class Answer:
    """An answer, as far as it came. text: the message. saying: says the answer. told: what is shown before it.

    routed: None if it was not routed, or is another try. match: the lesson that gives it, if a lesson does. by: the
    model, a tool (which answers instead of the model), or the memory, whose answer the model does not read later
    either. table: the id of the attached table that it analyses. said: its text. calls: of tools, as their turn keeps
    them. failure: what ended it, if it failed. is_more: something was said. id: the route's, if this is the first
    answer of that route.
    """

    text: str
    saying: AsyncIterator[AnswerEvent]
    told: Sequence[Event] = ()
    routed: Routed | None = None
    match: LessonMatch | None = None
    by: Literal["model", "tool", "memory"] = "model"
    table: str | None = None
    said: str = ""
    done: Done | None = None
    failure: Exception | None = None
    is_more: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.routed.id if self.routed else uuid.uuid4().hex

    @property
    def is_shown(self) -> bool:
        """True if the person has seen a part of the answer."""
        return bool(self.said or self.calls or (self.done and self.done.thought))

    async def events(self, assistant: Assistant) -> AsyncIterator[AnswerEvent | Context]:
        """Say the answer. Before the first word, tell what is in the prompt. Raises nothing: see `failure`."""
        known = assistant.context
        try:
            async with aclosing(self.saying) as events:  # type: ignore[type-var]
                async for event in events:
                    if assistant.context is not None and assistant.context is not known:
                        known = assistant.context
                        yield known
                    self._take(event)
                    yield event
        except Exception as error:
            self.failure = error

    def _take(self, event: AnswerEvent) -> None:
        if isinstance(event, Done):
            self.done = event
            if event.prompt_tokens or event.text:
                self.said, self.is_more = event.text, self.is_more or event.new_tokens > 0
        elif isinstance(event, ToolCalled):
            self.calls.append({
                "id": event.id, "name": event.name, "arguments": dict(event.arguments), "result": "It was stopped.",
                "failed": True, "round": event.round, "at": len(self.said),
            })  # fmt: skip
        elif isinstance(event, ToolReturned):
            call = next(one for one in reversed(self.calls) if one["id"] == event.id)
            call |= {"result": event.result, "failed": event.failed}
        elif isinstance(event, Delta | Thought):
            self.said += event.text if isinstance(event, Delta) else ""
            self.is_more = True

    def details(self) -> dict[str, Any]:
        """Return what its turn keeps, as JSON: `request` (its id); `agent` and `route` (what its chip says, with
        the route's id) if it was routed; `lesson` if a lesson answered: then the agent is the plain assistant. From
        the events before it, the ones that a stored turn shows (turn_events.py): `tool`, `card`, `taught` (of each
        answer of the memory), `passages` and `found`. `calls` of tools, as of MadeCall, each with its id. `reason`
        and `tokens` are as in Done. `thinking` ({text, seconds}) is there if the model thought before it answered,
        and the name of its `adapter` if it had one. `table`: as in Answer."""
        details: dict[str, Any] = {"request": self.id}
        if self.routed is not None:
            decision = self.routed.decision
            details["agent"] = self.routed.agent.id
            details["route"] = {
                "id": self.routed.id,
                "title": self.routed.agent.title,
                "reason": decision.reason,
                "confidence": decision.confidence,
                "threshold": decision.threshold,
                "ranked": [list(pair) for pair in decision.ranked[:RANKED_KEPT]],
            }
        if self.match is not None:
            details["agent"] = FALLBACK_ID
            details["lesson"] = self.match.details()
        if self.by == "memory":
            details["taught"] = []
        for event in self.told:
            told = {name: value for name, value in to_json(event).items() if name not in ("type", "new")}
            if isinstance(event, Taught):
                details["taught"].append(told)
            elif isinstance(event, Card):
                details["card"] = told
            elif isinstance(event, Computation):
                details["tool"] = told
            elif isinstance(event, Citations):
                details |= told
        if self.table is not None:
            details["table"] = self.table
        if self.calls:
            details["calls"] = self.calls
        if (done := self.done) is not None:
            details |= {"reason": done.reason, "tokens": done.new_tokens}
            if done.thought:
                details["thinking"] = {"text": done.thought, "seconds": done.thought_seconds}
            if done.adapter:
                details["adapter"] = done.adapter
        return details

    def trajectory(
        self, details: Mapping[str, Any], routed: Routed | None, *, session: str, model: str, backend: str,
        learnable: bool,
    ) -> Trajectory:  # fmt: skip
        """details: of the answer's turn. routed: the message's route, also if this is another try. The others: as in
        Trajectory. Nothing is learned from an answer in which the model had no part."""
        done = self.done
        route: dict[str, Any] = {}
        if routed is not None:
            decision = routed.decision
            by_patterns = decision.reason not in ("follow-up", "chosen")
            deciding = [n.pattern_id for n in decision.neighbours if by_patterns and n.agent == routed.agent.id]
            route = {
                "why": decision.reason, "confidence": decision.confidence, "patterns": deciding,
                "ranked": [list(pair) for pair in decision.ranked[:NEIGHBOURS_LOGGED]],
                "neighbours": [n.pattern_id for n in decision.neighbours[:NEIGHBOURS_LOGGED]],
            }  # fmt: skip
        if self.match is not None:
            route |= {"recalled": self.match.confidence}
            if self.match.read:
                route["read"] = [lesson.id for lesson in self.match.read]
        if tools := [event.kind for event in self.told if isinstance(event, Computation)]:
            route["tool"] = tools[0]
        if done is not None and done.adapter:
            route["adapter"] = done.adapter
        prompt_tokens = done.prompt_tokens if done else 0
        return Trajectory(
            self.id, self.text, self.said,
            session=session, agent=details.get("agent", ""), model=model[:LONGEST_NAME],
            reason=done.reason if done else "error", route=route, lesson=self.match.lesson.id if self.match else "",
            stages=self._stages(), prompt_tokens=prompt_tokens, new_tokens=done.new_tokens if done else 0,
            backend=backend, error=None if self.failure is None else f"{type(self.failure).__name__}: {self.failure}",
            # The model made it, or it can be judged with its lesson.
            learnable=learnable and bool(prompt_tokens or self.match), vector=routed.vector if routed else None,
        )  # fmt: skip

    def _stages(self) -> dict[str, float]:
        stages: dict[str, float] = dict(self.routed.decision.milliseconds) if self.routed else {}
        if self.match is not None:
            stages["recall"] = self.match.milliseconds
        if self.done is not None:
            stages |= {"prefill": 1000 * self.done.prefill_seconds, "decode": 1000 * self.done.decode_seconds}
        return stages
