"""What is stored of a turn beside its text, so that a stored conversation looks as it did when it was new."""

from __future__ import annotations

from typing import Any

from app.file_material import Material
from app.learning_service import Learned
from app.lesson_match import LessonMatch
from app.protocol import Card, Done, to_json
from app.routing_service import Routed
from py_core.memory.branches import Turn
from py_core.routing.agents import FALLBACK_ID
from py_core.showing import is_blank, whole_end

TITLE_LENGTH = 80
RANKED_KEPT = 5


def title_of(text: str) -> str:
    """The title of a conversation that begins with this message: its first words, at most TITLE_LENGTH characters."""
    words = "" if is_blank(text) else " ".join(text.split())
    if len(words) <= TITLE_LENGTH:
        return words
    cut = words[: whole_end(words, TITLE_LENGTH - 1)]
    if words[TITLE_LENGTH - 1] != " ":
        # A single word of that length, or a script without spaces, is cut anywhere.
        cut = cut.rpartition(" ")[0] or cut
    return f"{cut.rstrip(' ,;:.-')}…"


def answer_details(
    request: str,
    routed: Routed | None,
    done: Done | None,
    recalled: LessonMatch | None = None,
    material: Material | None = None,
) -> dict[str, Any]:
    """JSON: `request` (the answer's id: the route's, where the answer is the first of that); `agent` and `route` (what
    the answer's chip says, with the route's id) where it was routed; `reason` and `tokens` as in Done, `thinking`
    ({text, seconds}) where the model thought before it answered, and the name of its `adapter` where it had one.
    `lesson` (LessonMatch.details) where one answered: then the agent is the plain assistant. `passages` and `found`
    (as of Citations) where the model read attached files."""
    details: dict[str, Any] = {"request": request}
    if routed is not None:
        decision = routed.decision
        details["agent"] = routed.agent.id
        details["route"] = {
            "id": routed.id,
            "title": routed.agent.title,
            "reason": decision.reason,
            "confidence": decision.confidence,
            "threshold": decision.threshold,
            "ranked": [list(pair) for pair in decision.ranked[:RANKED_KEPT]],
        }
    if recalled is not None:
        details["agent"] = FALLBACK_ID
        details["lesson"] = recalled.details()
    if material is not None:
        details |= {"passages": to_json(material.cited), "found": material.found}
    if done is not None:
        details |= {"reason": done.reason, "tokens": done.new_tokens}
        if done.thought:
            details["thinking"] = {"text": done.thought, "seconds": done.thought_seconds}
        if done.adapter:
            details["adapter"] = done.adapter
    return details


def taught_details(learned: Learned) -> dict[str, Any]:
    """JSON: what a message taught that asked to remember something. NLL: nats a token of the answer."""
    return {
        "id": learned.lesson.id,
        "question": learned.lesson.question,
        "answer": learned.lesson.answer,
        "ms": learned.milliseconds,
        "nllBefore": learned.nll_before,
        "nllAfter": learned.nll_after,
        "known": not learned.is_new,
    }


def card_details(card: Card) -> dict[str, Any]:
    """JSON, which holds no answer of a lesson."""
    return {"kind": card.kind, "lessons": [{"id": one.id, "question": one.question} for one in card.lessons]}


def is_unread(answer: Turn) -> bool:
    """Whether the model has no part in it: the memory answered, or what it says was forgotten."""
    return "taught" in answer.details or bool(answer.details.get("unread"))
