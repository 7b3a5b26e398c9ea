"""The record of an answer: the question, the route and lesson, the cost, any error, and the quality.

All records are lines of the log (answer_log.py). Learning uses the learnable ones: the model or a lesson answered, and
learning was on. The writer stores records in batches, so an answer never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from py_core.store import field_checks as checks
from py_core.store.blobs import blob_name
from py_core.store.errors import StoreError
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import ALL, Kind
from py_core.store.records import LONGEST_NAME, Record, Vector
from py_core.store.rows import BLOB, FieldValue, Range
from py_core.store.store import Store
from py_core.store.transaction import Transaction
from py_core.store.write_batch import BatchedWriter

KIND, LOG = "trajectory", "witness"
MOST_AGE_SECONDS = 90 * 86400.0
MOST_TRAJECTORIES = 20_000
MOST_LEARNABLE = 2_000
KEPT_TEXT = 2_000
"""Characters of the message and of the answer, if it is learnable."""
LOGGED_TEXT = 500
"""Characters of the message in the log."""

Opinion = Literal["", "good", "bad", "corrected"]
"""The person's opinion of the answer: none, good, bad, or corrected with a better answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """An answer. `id` is the answer's id, which its turn also has.

    session: the conversation's id. agent: the one that answered, "" for the plain assistant. model: the first 16 digits
    of its file's sha256, or its name. reason: as Done's. route: JSON: `why`, `confidence`, the `patterns` that decided
    it, the agents that were `ranked` first and the `neighbours`; `recalled`, how sure the gate was of the lesson, and
    `read`, the ids of the lessons that the model read if the gate was not sure; the `tool` that computed, and the name
    of the `adapter`. lesson: the id of the lesson that answered, "" for none. stages: milliseconds of each. logprob:
    the mean of the answer's tokens. again: True if the person asked for another answer. kept: the share of its words in
    the person's correction. parts, quality: see learning/quality.py, each 0 to 1 or None while it is not known.
    effects: the changes that the feedback made, so that they can be taken back. backend: the one that ran the model.
    error: the error with which it failed. rating: the person's rating of answer or route, 0 to 1, or None. learnable:
    True if learning uses it. vector: of the message, float32 (dimensions,). created: seconds since 1970.
    """

    id: str
    asked: str
    answered: str
    session: str = ""
    agent: str = ""
    model: str = ""
    reason: str = ""
    route: Mapping[str, Any] = field(default_factory=dict)
    lesson: str = ""
    stages: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    new_tokens: int = 0
    logprob: float | None = None
    again: bool = False
    feedback: Opinion = ""
    kept: float | None = None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    quality: float | None = None
    effects: tuple[Mapping[str, Any], ...] = ()
    backend: str = ""
    error: str | None = None
    rating: float | None = None
    learnable: bool = True
    vector: Vector | None = None
    created: float = 0.0

    @property
    def total_ms(self) -> float:
        return sum(self.stages.values())


class Trajectories:
    """The trajectories of a store. Methods use only the learnable ones unless their docstring says otherwise. Every
    method that waits may raise StoreError."""

    def __init__(
        self,
        store: Store,
        writer: BatchedWriter | None = None,
        *,
        most_age: float = MOST_AGE_SECONDS,
        most: int = MOST_TRAJECTORIES,
        most_learnable: int = MOST_LEARNABLE,
    ) -> None:
        self.store = store
        self.writer = writer or BatchedWriter(store)
        self._most_age, self._most, self._most_learnable = most_age, most, most_learnable

    def record(self, trajectory: Trajectory) -> Trajectory:
        """Keep a trajectory, learnable or not, without waiting. Returns it as it is kept: with its time, and with long
        texts cut off. The answer's text is kept only if the trajectory is learnable."""
        trajectory = replace(_cut(trajectory), created=trajectory.created or self.store.clock())
        self.writer.put(_record(trajectory))
        return trajectory

    async def get(self, id: str) -> Trajectory | None:
        await self.writer.flush()
        record = await self.store.get(KIND, id)
        return trajectory_of(record) if record and record.body["learnable"] else None

    async def all(self, *, since: float | None = None, limit: int | None = None) -> list[Trajectory]:
        """All learnable trajectories, newest first."""
        return await self.find(learnable=True, since=since, limit=limit)

    async def find(
        self, *, since: float | None = None, limit: int | None = None, **where: FieldValue | Range
    ) -> list[Trajectory]:
        """Trajectories, learnable or not, newest first. where: indexed fields (TRAJECTORIES)."""
        await self.writer.flush()
        records = await self.store.query(KIND, where, since=since, newest_first=True, limit=limit)
        return [trajectory_of(record) for record in records]

    async def of_lesson(self, lesson: str) -> list[Trajectory]:
        """The answers that a lesson gave, newest first."""
        return await self.find(learnable=True, lesson=lesson)

    async def change(self, id: str, change: Callable[[Trajectory], Trajectory]) -> Trajectory | None:
        """Replace a trajectory by `change` of it; `change` may be called again. Returns None if it no longer exists."""
        if await self.get(id) is None:
            return None
        record = await self.store.update(KIND, id, lambda record: _record(change(trajectory_of(record))))
        if record is None:
            return None
        return trajectory_of(record)

    async def rate(self, id: str, rating: float | None) -> None:
        """Rate an answer, learnable or not; None takes the rating back. Ignored if the answer is not there."""
        if rating is not None and not 0.0 <= rating <= 1.0:
            raise StoreError("record", "trajectory.bad-rating", "The rating must be a number from 0 to 1.")
        await self.writer.flush()
        await self.store.update(KIND, id, lambda r: replace(r, body={**r.body, "rating": rating}))

    async def delete(self, *ids: str) -> None:
        """Delete trajectories, learnable or not."""
        await self.writer.flush()
        await self.store.delete(KIND, *ids)

    def set_aside_in(self, transaction: Transaction, trajectories: Iterable[Trajectory]) -> None:
        """Exclude trajectories from learning; only their lines of the log are left."""
        for one in trajectories:
            transaction.put(_record(_cut(replace(one, learnable=False))))
            transaction.delete(BLOB, blob_name(KIND, one.id, "trace"))  # its tokens, which older versions kept

    async def retain(self) -> int:
        """Delete trajectories that are too old and the oldest ones beyond the limit, learnable or not. Set aside the
        oldest learnable ones beyond their own limit. Returns how many were deleted."""
        await self.writer.flush()
        gone = [r.id for r in await self.store.query(KIND, before=self.store.clock() - self._most_age)]
        too_many = await self.store.count(KIND) - len(gone) - self._most
        if too_many > 0:
            gone = [record.id for record in await self.store.query(KIND, limit=len(gone) + too_many)]
        if gone:
            await self.delete(*gone)
        if await self.store.count(KIND) <= self._most_learnable:
            return len(gone)
        learnable = await self.store.query(KIND, {"learnable": True})
        if old := learnable[: max(len(learnable) - self._most_learnable, 0)]:
            async with self.store.transaction() as transaction:
                self.set_aside_in(transaction, map(trajectory_of, old))
        return len(gone)


def _cut(trajectory: Trajectory) -> Trajectory:
    """The trajectory with its texts cut to the kept length."""
    if trajectory.learnable:
        return replace(trajectory, asked=trajectory.asked[:KEPT_TEXT], answered=trajectory.answered[:KEPT_TEXT])
    return replace(trajectory, asked=trajectory.asked[:LOGGED_TEXT], answered="")


def _record(trajectory: Trajectory) -> Record:
    body = asdict(replace(trajectory, vector=None))
    for name in ("id", "vector", "created"):
        del body[name]
    body |= {"effects": list(body["effects"]), "failed": trajectory.error is not None}
    return Record(KIND, trajectory.id, body, trajectory.vector, trajectory.created)


def trajectory_of(record: Record) -> Trajectory:
    assert record.created is not None
    values = {**record.body, "effects": tuple(record.body["effects"])}
    del values["failed"]
    return Trajectory(id=record.id, vector=record.vector, created=record.created, **values)


def _with_log(record: Record, log: Record | None) -> Record:
    """Until version 9 an answer had two records: its trajectory, and a log entry of the kind LOG."""
    told = {} if log is None else log.body
    route = record.body.get("route")
    body = {**record.body, "route": {**_kept_of(told), **(route if isinstance(route, dict) else {})}}
    vector = log.vector if record.vector is None and log else record.vector
    return replace(record, body={**body, **_logged(told), "learnable": True}, vector=vector)


def _of_log(record: Record, trajectory: Record | None) -> Record | None:
    """The record of an answer from its log entry alone: nothing is learned from it. None if it has a trajectory."""
    if trajectory is not None:
        return None
    log = record.body
    routing = _routing_of(log)
    read = {"read": routing["read"]} if "read" in routing else {}
    alone = {
        "asked": routing.get("text", ""), "answered": "", "session": "", "agent": log.get("agent", ""), "model": "",
        "reason": routing.get("reason", "error"), "route": {**_kept_of(log), **read},
        "lesson": routing.get("lesson", ""), "stages": log.get("stages", {}), "prompt_tokens": 0,
        "new_tokens": routing.get("tokens") or 0, "logprob": None,
        "again": False, "feedback": "", "kept": None, "parts": {}, "quality": None, "effects": [],
    }  # fmt: skip
    return replace(record, kind=KIND, body={**alone, **_logged(log), "learnable": False})


def _routing_of(log: Mapping[str, Any]) -> dict[str, Any]:
    routing = log.get("routing")
    return routing if isinstance(routing, dict) else {}


def _kept_of(log: Mapping[str, Any]) -> dict[str, Any]:
    """The part of its log entry that a trajectory's route keeps."""
    routing = _routing_of(log)
    names = ("why", "confidence", "ranked", "neighbours", "tool", "adapter")
    return {name: routing[name] for name in names if routing.get(name) is not None}


def _logged(log: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a trajectory that its log entry had."""
    error = log.get("error")
    return {
        "backend": log.get("backend", ""),
        "error": error,
        "failed": error is not None,
        "rating": log.get("quality"),
    }


TRAJECTORIES = Kind(
    KIND,
    ("recorded answer", "recorded answers"),
    {
        "asked": checks.text(),
        "answered": checks.text(),
        "session": checks.text(LONGEST_NAME),
        "agent": checks.text(LONGEST_NAME),
        "model": checks.text(LONGEST_NAME),
        "reason": checks.text(LONGEST_NAME),
        "route": checks.object_of(
            why=checks.text(),
            confidence=checks.number(-1e9, 1e9),
            patterns=checks.names,
            recalled=checks.share,
            read=checks.names,
            tool=checks.text(LONGEST_NAME),
            adapter=checks.text(),
        ),
        "lesson": checks.text(LONGEST_NAME),
        "stages": checks.milliseconds,
        "prompt_tokens": checks.integer(LARGEST_INTEGER),
        "new_tokens": checks.integer(LARGEST_INTEGER),
        "logprob": checks.or_null(checks.number(-1e9, 0)),
        "again": checks.boolean,
        "feedback": checks.one_of(*get_args(Opinion)),
        "kept": checks.or_null(checks.share),
        "parts": checks.parts,
        "quality": checks.or_null(checks.share),
        "effects": checks.objects,
        "backend": checks.text(LONGEST_NAME),
        "error": checks.or_null(checks.text()),
        "failed": checks.boolean,
        "rating": checks.or_null(checks.share),
        "learnable": checks.boolean,
    },
    indexed=("session", "lesson", "failed", "rating", "learnable"),
    has_blobs=True,
    migrations={8: _with_log},
    partner=LOG,
)

LOGS = Kind(LOG, partner=KIND, migrations={8: _of_log}, retired=ALL)
