"""What is kept of an answer beside its text: its log entry and its trajectory, under the answer's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.exact_answers import Computed
from app.file_material import Material
from app.lesson_match import LessonMatch
from app.memory_talk import Talked
from app.protocol import Done
from app.routing_service import Routed
from py_core.memory.records import LONGEST_NAME
from py_core.memory.trajectories import Trajectory
from py_core.memory.witness import WitnessEntry
from py_core.routing.agents import FALLBACK_ID

KEPT_TEXT = 500
"""Characters of a message in the witness log."""
NEIGHBOURS_LOGGED = 3


@dataclass(frozen=True)
class Answer:
    """An answer, as far as it came. id: the route's, where it is the first answer of that.

    text: the message. said: what was said in answer. routed: None where it was not routed, or is another try.
    failure: what ended it, if it failed. recalled: the lesson that gave it, if one did. talked: what was
    said to a message for the memory. computed: by which tool, in place of the model.
    """

    id: str
    text: str
    routed: Routed | None
    said: str = ""
    done: Done | None = None
    failure: Exception | None = None
    recalled: LessonMatch | None = None
    material: Material | None = None
    talked: Talked | None = None
    computed: Computed | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the person has seen something of it."""
        return bool(self.said or (self.done and self.done.thought))

    @property
    def is_unread(self) -> bool:
        """Whether the model has no part in it, and does not read it later either."""
        return self.talked is not None

    def witness_entry(self, backend: str) -> WitnessEntry:
        routed, done = self.routed, self.done
        routing: dict[str, Any] = {"text": self.text[:KEPT_TEXT]}
        if routed is not None:
            routing["why"] = routed.decision.reason
            if routed.decision.ranked:
                routing["confidence"] = routed.decision.confidence
            routing["ranked"] = [list(pair) for pair in routed.decision.ranked[:NEIGHBOURS_LOGGED]]
            routing["neighbours"] = [n.pattern_id for n in routed.decision.neighbours[:NEIGHBOURS_LOGGED]]
        if self.recalled is not None:
            routing["lesson"] = self.recalled.lesson.id
            routing |= self._read()
        if self.computed is not None:
            routing["tool"] = self.computed.exact.kind
        if done is not None:
            routing |= {"reason": done.reason, "tokens": done.new_tokens}
            if done.adapter:
                routing["adapter"] = done.adapter
        return WitnessEntry(
            agent=FALLBACK_ID if self.recalled else routed.agent.id if routed else "",
            backend=backend,
            stages=self._stages(),
            routing=routing,
            error=None if self.failure is None else f"{type(self.failure).__name__}: {self.failure}",
            vector=routed.vector if routed else None,
            id=self.id,
        )

    def trajectory(
        self, session: str, model: str, details: Mapping[str, Any], routed: Routed | None = None
    ) -> Trajectory:
        """session: the conversation's id. model: its name. details: of the answer's turn. routed: the message's route,
        also where this is another try."""
        done = self.done
        route: dict[str, Any] = {}
        if routed is not None:
            by_patterns = routed.decision.reason not in ("follow-up", "chosen")
            deciding = [n.pattern_id for n in routed.decision.neighbours if by_patterns and n.agent == routed.agent.id]
            route = {"why": routed.decision.reason, "confidence": routed.decision.confidence, "patterns": deciding}
        if self.recalled is not None:
            route |= {"recalled": self.recalled.confidence} | self._read()
        return Trajectory(
            self.id,
            self.text,
            self.said,
            session=session,
            agent=details.get("agent", ""),
            lesson=self.recalled.lesson.id if self.recalled else "",
            model=model[:LONGEST_NAME],
            reason=done.reason if done else "error",
            route=route,
            stages=self._stages(),
            prompt_tokens=done.prompt_tokens if done else 0,
            new_tokens=done.new_tokens if done else 0,
            vector=routed.vector if routed else None,
        )

    def _read(self) -> dict[str, Any]:
        """The lessons that the model read for this answer, where it read any."""
        read = self.recalled.read if self.recalled else ()
        return {"read": [lesson.id for lesson in read]} if read else {}

    def _stages(self) -> dict[str, float]:
        stages: dict[str, float] = dict(self.routed.decision.milliseconds) if self.routed else {}
        if self.recalled is not None:
            stages["recall"] = self.recalled.milliseconds
        if self.done is not None:
            stages |= {"prefill": 1000 * self.done.prefill_seconds, "decode": 1000 * self.done.decode_seconds}
        return stages
