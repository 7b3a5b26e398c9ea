"""The data that crosses between Python and the page. The build makes web/protocol.js of it
(app/building/page_protocol.py).

An event is something that happens to a turn: a frozen dataclass. `to_json` turns it into plain data, with names in
camelCase and its `type`, the name of its class in kebab-case. Fields that are marked INTERNAL stay in Python. A stored
turn is told as the same events as one that streams (app/chat/turn_events.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from app.records.branches import Turn
from app.records.lessons import Lesson
from py_core.messages import Words

INTERNAL = {"internal": True}
"""Metadata of a field that the page does not get."""


# ---- what else events hold ----


@dataclass(frozen=True)
class RouteNeighbour:
    """A pattern that is similar to a message. similarity: a cosine."""

    id: str
    text: str
    agent: str
    similarity: float
    source: str


@dataclass(frozen=True)
class LessonName:
    """A lesson by its id, and the question that it answers."""

    id: str
    question: str


@dataclass(frozen=True)
class ConsideredLesson:
    """A lesson that was compared with a message. confidence: the probability that it answers it."""

    id: str
    question: str
    confidence: float


@dataclass(frozen=True)
class Citation:
    """A passage that the model read. text: "" for a whole file; place: its pages, "" if it has none."""

    file: str
    name: str
    place: str = ""
    text: str = ""


@dataclass(frozen=True)
class Fact:
    """A question with its answer."""

    question: str
    answer: str


# ---- events, in the order in which they come ----


@dataclass(frozen=True)
class Changed:
    """Another tab or program has changed the stored conversation; gone: it deleted it."""

    gone: bool
    turns: tuple[Turn, ...] = field(default=(), metadata=INTERNAL)
    """The turns that are shown now."""


@dataclass(frozen=True)
class Route:
    """The agent that answers, and why. title: the agent's name. confidence: the probability that the first of
    `ranked` is right for this message alone; below `threshold` the fallback answers. ranked: agents with the
    probability that each is right. ms: of embed, search and decide; empty for a stored turn, like `neighbours`."""

    id: str
    text: str
    agent: str
    title: Words
    reason: str
    confidence: float
    threshold: float
    ranked: tuple[tuple[str, float], ...] = ()
    neighbours: tuple[RouteNeighbour, ...] = ()
    ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Recall:
    """A lesson answers. considered: the lessons that were compared with the message, the best first. read: the lessons
    that the model read, if the gate was not sure. A stored turn has neither `considered` nor `ms`."""

    id: str
    question: str
    confidence: float
    read: tuple[LessonName, ...] = ()
    considered: tuple[ConsideredLesson, ...] = ()
    ms: float | None = None


@dataclass(frozen=True)
class Computation:
    """A tool gives the answer. kind: "arithmetic", "date", "unit", "count", "table" or "help". working: the method,
    in a sentence or two."""

    kind: str
    words: str
    working: str


@dataclass(frozen=True)
class Citations:
    """The passages of attached files that the model reads. found: "whole" files, or passages by "meaning" and words,
    or by "words" alone."""

    passages: tuple[Citation, ...]
    found: Literal["whole", "meaning", "words"]


@dataclass(frozen=True)
class Taught:
    """The message taught this. nll: nats per token of the answer before and after; None if the model learns it later.
    ms: None for a stored turn. known: exactly the same was taught before."""

    id: str
    question: str
    answer: str
    ms: float | None
    nll_before: float | None
    nll_after: float | None
    known: bool = False


@dataclass(frozen=True)
class Card:
    """Lessons that the answer shows: they were forgotten, one of them is to be chosen to forget, or they are all
    lessons. new: the turn is not a stored one, so forgotten lessons can be restored."""

    kind: Literal["forgotten", "choose", "listed"]
    lessons: tuple[LessonName, ...]
    new: bool = False
    originals: tuple[Lesson, ...] = field(default=(), metadata=INTERNAL)


@dataclass(frozen=True)
class Context:
    """The contents of a prompt, in tokens: `system` (the system prompt), `memory` (what was learned), `turns` (messages
    with the instructions of agents, and answers), `file` and `tools` fill the `total`, together with `free`, the rest
    for the answer and what comes after it.

    left_out: about how many tokens of turns did not fit. bytes_per_token: the backend memory that a token of context
    takes.
    """

    system: int
    memory: int
    turns: int
    file: int
    tools: int
    free: int
    total: int
    left_out: int
    bytes_per_token: int


@dataclass(frozen=True)
class Reading:
    """The prompt is being read: `done` of `total` tokens, including the prefix that it shares with earlier turns.
    seconds_left: from now on; None while unknown."""

    done: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class Thought:
    """More text of the model's thinking before it answers. It is not part of the answer or of later prompts."""

    text: str


@dataclass(frozen=True)
class Delta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class Canvas:
    """The places behind the answer so far that a model of diffusion writes now: a text, or None for a mask. The next
    Delta takes their place."""

    places: list[str | None]


@dataclass(frozen=True)
class ToolCalled:
    """The model calls a tool, which begins to run. id: of the call, within its answer."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    round: int = field(default=0, metadata=INTERNAL)
    """Calls of the same round were wanted at once."""


@dataclass(frozen=True)
class ToolReturned:
    """A call has ended. result: what the model reads of it, or a sentence on why it failed. seconds: None for a stored
    turn."""

    id: str
    result: str
    failed: bool
    seconds: float | None = None


@dataclass(frozen=True)
class Replacement:
    """The answer and the thought before it, which replace the text that was sent: without the repetitions of a loop, or
    with the beginning of a continued answer."""

    text: str
    thought: str


@dataclass(frozen=True)
class Done:
    """The answer is complete.

    reason: "end" (the model stopped), "length" (max_tokens), "context" (no room left), "loop" (it only repeated
    itself), "calls" (it could call no more tools, and answered from what it had) or "stopped" (by the user). `text` is
    the whole answer, `thought` what it thought before: after a loop without the repeats. Seconds are for the prompt's
    new tokens, for the answer's (its thought included), and for the thought. reused_tokens: of the prompt, which had
    been read before. forgotten_turns: messages that no longer fit into the model's context and were left out. adapter:
    the name of the adapter that the model answered with, "" for none.
    """

    reason: str
    text: str = field(default="", metadata=INTERNAL)
    prompt_tokens: int = 0
    new_tokens: int = 0
    prefill_tok_s: float = 0.0
    decode_tok_s: float = 0.0
    forgotten_turns: int = 0
    prefill_seconds: float = field(default=0.0, metadata=INTERNAL)
    decode_seconds: float = field(default=0.0, metadata=INTERNAL)
    thought: str = field(default="", metadata=INTERNAL)
    thought_seconds: float = 0.0
    adapter: str = field(default="", metadata=INTERNAL)
    reused_tokens: int = 0


@dataclass(frozen=True)
class Stored:
    """Question and answer are in the memory. answer: its stored text; "" for a stored turn, which has the text itself.
    request: the answer's id, by which it can be judged; "" if no model made it. turns: how many are shown. question,
    number: the numbers of the two turns."""

    chat: str
    turns: int
    answer: str
    request: str
    question: int | None
    number: int


@dataclass(frozen=True)
class Offer:
    """Facts that the message told in passing, which the person may want to be remembered. chat: the conversation's id,
    None if it is not stored."""

    chat: str | None
    lessons: tuple[Fact, ...]


@dataclass(frozen=True)
class Failure:
    """The answer failed. kind: of the error. details: the traceback; None if `message` is written for users, which is
    only a text if it is a traceback's last line or comes from JavaScript."""

    kind: str
    message: Words
    details: str | None


AnswerEvent = Reading | Thought | Delta | Canvas | ToolCalled | ToolReturned | Replacement | Done
"""The events of an answer."""
Event = (
    Changed | Route | Recall | Computation | Citations | Taught | Card | Context | Reading | Thought | Delta | Canvas
    | ToolCalled | ToolReturned | Replacement | Done | Stored | Offer | Failure
)  # fmt: skip


@dataclass(frozen=True)
class StoredTurn:
    """A stored turn as the page shows it. after: the number of the turn that it follows, None for a first turn.
    siblings: the numbers of its variants including its own, the oldest first. created: seconds since 1970. events: of
    an answer."""

    number: int
    after: int | None
    siblings: tuple[int, ...]
    role: str
    content: str
    created: float
    events: tuple[Event, ...] = ()


# ---- plain data ----

_PLAIN = (str, int, float)  # in isinstance, `str | int | float` would be made for each id of a prompt


def to_json(value: Any) -> Any:
    """Return a dataclass of this module as plain data: see the top."""
    if value is None or isinstance(value, _PLAIN):  # first: most are, such as the ids of a prompt
        return value
    if is_dataclass(value) and not isinstance(value, type):
        named = {name: to_json(getattr(value, attribute)) for attribute, name in _told(type(value))}
        return {"type": event_type(type(value).__name__), **named} if isinstance(value, Event) else named
    if isinstance(value, Mapping):
        return {name: to_json(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [to_json(one) for one in value]
    return value


@cache
def event_type(name: str) -> str:
    """The `type` of an event by the name of its class: stored-turn of StoredTurn."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


@cache
def _told(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the attributes that cross, with their names in JavaScript."""
    return tuple((one.name, camel_case(one.name)) for one in fields(kind) if not one.metadata.get("internal"))
