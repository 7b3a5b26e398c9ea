"""The page's data about the memory, as plain data. Times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from app.chat.history.views import AgentName
from app.stage import State
from py_core.messages import Words


class SpeedGroup(TypedDict):
    """Answers in a row. created: of the last one. tokS: the median of tokens a second, None if no answer was long
    enough. first: milliseconds until the first token, by percentile."""

    created: float
    count: int
    tokS: float | None
    first: dict[str, float]


class MemoryInfo(TypedDict):
    """problem, uncompacted, suspicion: sentences."""

    state: State
    routing: State
    learning: State
    problem: Words | None
    persistent: bool
    place: str
    encrypted: bool
    unreadable: int
    agents: list[AgentName]
    uncompacted: Words | None
    suspicion: Words | None


class KeptBytes(TypedDict):
    """Bytes of the conversations' stored keys and values (None if none are kept), and the limit."""

    bytes: int | None
    most: int


class CorrectedRoute(TypedDict):
    """The id of the pattern that the router learned."""

    pattern: str


class Entries(TypedDict):
    """total: of all that were found."""

    total: int
    items: list[dict[str, Any]]


class PatternMap(TypedDict):
    """points: x, y, the number of its agent, source, text, id."""

    agents: list[str]
    points: Sequence[tuple[float, float, int, str, str, str]]


class StageTrend(TypedDict):
    """As py_core.store.witness_questions.Trend."""

    medians: Sequence[tuple[float, float]]
    change: float


class Statistics(TypedDict):
    """percentiles: milliseconds of each stage, by percentile. trends: by stage. agents: how many answers each gave."""

    percentiles: Mapping[str, Mapping[int, float]]
    trends: Mapping[str, StageTrend]
    agents: list[tuple[str, int]]
    speeds: list[SpeedGroup]


class ImportedItems(TypedDict):
    """leftOut: could not be read."""

    written: int
    leftOut: int


class ImportedChatFile(TypedDict):
    """As app.chat.history.files.ImportedChats."""

    chats: int
    messages: int
    leftOut: int
    unread: int
