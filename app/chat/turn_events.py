"""A turn as events of app/protocol.py. They are made from what answers a message, and from a stored answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from app.chat.turn_details import is_unread
from app.files.material import Material
from app.lessons.service import Learned
from app.protocol import (
    Card,
    Citation,
    Citations,
    Computation,
    Delta,
    Done,
    Event,
    LessonName,
    Recall,
    Route,
    RouteNeighbour,
    Stored,
    StoredTurn,
    Taught,
    Thought,
    ToolCalled,
    ToolReturned,
)  # fmt: skip
from app.records.branches import Branches, Turn
from app.routing.agent_catalog import agent_words
from app.routing.service import Routed

if TYPE_CHECKING:
    from py_core.tools.question import Exact

Details = Mapping[str, Any]
_ROUTE = ("title", "reason", "confidence", "threshold", "ranked")


def route_event(routed: Routed) -> Route:
    decision = routed.decision
    title = agent_words(routed.agent.id, "title", routed.agent.title)
    neighbours = [RouteNeighbour(n.pattern_id, n.text, n.agent, n.similarity, n.source) for n in decision.neighbours]
    return Route(
        routed.id, routed.text, routed.agent.id, title, decision.reason, decision.confidence,
        decision.threshold, decision.ranked, tuple(neighbours), decision.milliseconds,
    )  # fmt: skip


def computation_event(exact: Exact) -> Computation:
    return Computation(exact.kind, exact.words, exact.working)


def citations_event(material: Material) -> Citations:
    return Citations(material.cited, material.found)


def taught_event(learned: Learned) -> Taught:
    lesson = learned.lesson
    return Taught(
        lesson.id, lesson.question, lesson.answer, learned.milliseconds, learned.nll_before, learned.nll_after,
        not learned.is_new,
    )  # fmt: skip


def stored_turns(chat: str, branches: Branches) -> list[StoredTurn]:
    """Return what is shown of a stored conversation. chat: its id."""
    path = branches.path()
    asked, shown = "", []
    for turn in path:
        asked = turn.content if turn.role == "user" else asked
        events = () if turn.role == "user" else tuple(stored_events(turn, asked, chat, len(path)))
        siblings = tuple(branches.siblings(turn.number))
        shown.append(StoredTurn(turn.number, turn.after, siblings, turn.role, turn.content, turn.created, events))
    return shown


def stored_events(turn: Turn, asked: str, chat: str, turns: int) -> Iterator[Event]:
    """Yield a stored answer's events in their original order. asked: the message. turns: how many are shown."""
    details = turn.details
    for read in (_route, _recall, _computation, _consulted, _taught, _card, _thought):
        with suppress(KeyError, TypeError, AttributeError):  # a damaged file was imported
            yield from read(details, asked)
    try:
        said = [*_called(turn)]
    except (KeyError, TypeError, AttributeError, ValueError):
        said = [Delta(turn.content)]
    yield from said
    yield Done(
        details.get("reason") or "end", new_tokens=details.get("tokens") or 0,
        thought_seconds=(details.get("thinking") or {}).get("seconds") or 0.0,
    )  # fmt: skip
    is_models = not is_unread(turn) and "tool" not in details
    yield Stored(chat, turns, "", details.get("request", "") if is_models else "", turn.after, turn.number)


def _called(turn: Turn) -> Iterator[Event]:
    """The answer's text with the calls of tools in it."""
    said = 0
    for call in turn.details.get("calls") or ():
        if text := turn.content[said : int(call["at"])]:
            yield Delta(text)
            said = int(call["at"])
        yield ToolCalled(str(call["id"]), str(call["name"]), dict(call["arguments"]), int(call["round"]))
        yield ToolReturned(str(call["id"]), str(call["result"]), bool(call["failed"]))
    yield Delta(turn.content[said:])


def _route(details: Details, asked: str) -> Iterator[Event]:
    route = details.get("route") or {}
    if all(name in route for name in _ROUTE):
        id = route.get("id") or details.get("request", "")  # earlier versions had one id for both
        agent = details.get("agent", "")
        told = {name: route[name] for name in _ROUTE} | {"title": agent_words(agent, "title", route["title"])}
        yield Route(id, asked, agent, **told)


def _recall(details: Details, asked: str) -> Iterator[Event]:
    if lesson := details.get("lesson"):
        yield Recall(lesson["id"], lesson["question"], lesson["confidence"], _names(lesson.get("read") or ()))


def _computation(details: Details, asked: str) -> Iterator[Event]:
    if tool := details.get("tool"):
        yield Computation(tool["kind"], tool["words"], tool["working"])


def _consulted(details: Details, asked: str) -> Iterator[Event]:
    if details.get("passages") is not None and details.get("found"):
        yield _citations(details)


def _taught(details: Details, asked: str) -> Iterator[Event]:
    taught = details.get("taught") or []
    for one in [taught] if isinstance(taught, dict) else taught:  # an earlier version taught one thing at a time
        yield Taught(
            one["id"], one["question"], one["answer"], None, one.get("nllBefore"), one.get("nllAfter"),
            one.get("known", False),
        )  # fmt: skip


def _card(details: Details, asked: str) -> Iterator[Event]:
    if card := details.get("card"):
        yield Card(card["kind"], _names(card["lessons"]))


def _thought(details: Details, asked: str) -> Iterator[Event]:
    if thinking := details.get("thinking"):
        yield Thought(thinking["text"])


def _names(lessons: Sequence[Mapping[str, Any]]) -> tuple[LessonName, ...]:
    return tuple(LessonName(one["id"], one["question"]) for one in lessons)


def _citations(entry: Mapping[str, Any]) -> Citations:
    """entry: from a stored turn."""
    passages = [Citation(one["file"], one["name"], one["place"], one["text"]) for one in entry["passages"]]
    return Citations(tuple(passages), entry["found"])
