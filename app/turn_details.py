"""What is stored of a turn beside its text, so that a stored conversation looks as it did when it was new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.assistant import Done, Reading
from app.file_material import Material
from app.learning_service import Learned
from app.prompt_window import Context
from app.recalled import Recalled
from app.routing_service import Routed
from py_core.memory.branches import Branches, Turn
from py_core.routing.agents import FALLBACK_ID
from py_core.showing import is_blank, whole_end

TITLE_LENGTH = 80
RANKED_KEPT = 5
_ROUTE = ("title", "reason", "confidence", "threshold", "ranked")


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
    recalled: Recalled | None = None,
    material: Material | None = None,
) -> dict[str, Any]:
    """JSON: `request` (the answer's id: the route's, where the answer is the first of that); `agent` and `route` (what
    the answer's chip says, with the route's id) where it was routed; `reason` and `tokens` as in Done, `thinking`
    ({text, seconds}) where the model thought before it answered, and the name of its `adapter` where it had one.
    `lesson` (Recalled.details) where one answered: then the agent is the plain assistant. `passages` and `found`
    (Material.entry) where the model read attached files."""
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
        details |= material.entry()
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


def context_entry(context: Context) -> dict[str, int]:
    """As plain data, for the page."""
    names = {"left_out": "leftOut", "bytes_per_token": "bytesPerToken"}
    return {names.get(name, name): value for name, value in asdict(context).items()}


def reading_entry(reading: Reading) -> dict[str, Any]:
    """As plain data, for the page."""
    return {"done": reading.tokens_read, "total": reading.prompt_tokens, "secondsLeft": reading.seconds_left}


def done_entry(done: Done, whole: bool = False) -> dict[str, Any]:
    """As plain data, for the page. whole: with the text, where not all of it was told as it came."""
    entry: dict[str, Any] = {
        "reason": done.reason,
        "promptTokens": done.prompt_tokens,
        "reusedTokens": done.reused_tokens,
        "newTokens": done.new_tokens,
        "prefillTokS": done.prefill_tok_s,
        "decodeTokS": done.decode_tok_s,
        "forgottenTurns": done.forgotten_turns,
        "thoughtSeconds": done.thought_seconds,
    }
    if done.reason == "loop" or (whole and done.prompt_tokens):  # without the repeats, which the page has shown
        entry |= {"text": done.text, "thought": done.thought}
    return entry


def is_unread(answer: Turn) -> bool:
    """Whether the model has no part in it: the memory answered, or what it says was forgotten."""
    return "taught" in answer.details or bool(answer.details.get("unread"))


def _taught(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    taught = details.get("taught") or []
    return [taught] if isinstance(taught, dict) else taught  # an earlier version taught one thing at a time


def turn_entries(branches: Branches) -> list[dict[str, Any]]:
    """What is shown of a conversation as plain data, for the page: number, after, siblings (the numbers of the turn's
    variants, with its own, oldest first), role, content, created, request, agent, route, lesson, taught
    (a list of taught_details), card (memory_talk.Card.entry), tool (Computed.entry), passages, found, reason, tokens,
    thinking; None where not known.

    route: as routing_service.route_entry gives, without neighbours and times.
    """
    entries = []
    asked = ""
    for turn in branches.path():
        if turn.role == "user":
            asked = turn.content
        details = turn.details
        route = details.get("route")
        if isinstance(route, dict) and all(name in route for name in _ROUTE):
            id = route.get("id") or details.get("request", "")  # earlier versions had one id for both
            told = {"id": id, "text": asked, "agent": details.get("agent", "")}
            route = {**told, **{name: route[name] for name in _ROUTE}, "neighbours": [], "ms": {}}
        else:
            route = None
        entries.append(
            {
                "number": turn.number,
                "after": turn.after,
                "siblings": branches.siblings(turn.number),
                "role": turn.role,
                "content": turn.content,
                "created": turn.created,
                "request": None if is_unread(turn) or "tool" in details else details.get("request"),  # no model made it
                "agent": details.get("agent"),
                "route": route,
                "lesson": details.get("lesson"),
                "taught": _taught(details),
                "card": details.get("card"),
                "tool": details.get("tool"),
                "passages": details.get("passages"),
                "found": details.get("found"),
                "reason": details.get("reason"),
                "tokens": details.get("tokens"),
                "thinking": details.get("thinking"),
            }
        )
    return entries
