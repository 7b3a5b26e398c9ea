"""What happened while an answer was made: what was asked, by which route and lesson, and how good it was.

The latest are in memory (a ring buffer); the writer stores them in batches, so an answer waits for nothing. Tokens,
log-probabilities and hidden states of an answer are its trace: a blob beside the record, deleted with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.memory.blobs import blob_name
from py_core.memory.records import Record, Vector
from py_core.memory.rows import BLOB, Change
from py_core.memory.store import Store
from py_core.memory.transaction import Transaction
from py_core.memory.write_batch import BatchedWriter

KIND = "trajectory"
MOST_AGE_SECONDS = 90 * 86400.0
MOST_TRAJECTORIES = 2_000
"""With their traces some 25 MB for a model of 135 million parameters."""
RECENT = 64
"""How many are in memory, too."""
KEPT_TEXT = 2_000
"""Characters of the message and of the answer."""

Opinion = Literal["", "good", "bad", "corrected"]
"""What the person said of the answer: nothing, or gave a better one."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """An answer. `id` is the answer's, which its turn and its log entry have, too.

    session: the conversation's id. agent: who answered, "" for the plain assistant. model: the first 16 digits of its
    file's sha256, or its name. reason: as Done's. route: JSON: `why`, `confidence`, the `patterns` that decided it, and
    `recalled`, how sure the gate was of the lesson, and `read`, the ids of those that the model read where that was not
    sure. lesson: the id of the lesson that answered, "" for none. stages:
    milliseconds of each. logprob: the mean of the answer's tokens. again: the person asked for another answer. kept:
    the share of its words in the person's correction. parts, quality: see learning/quality.py, each 0 to 1 or None
    while it is not known. effects: what the feedback changed, so that it can be taken back. vector: of the message,
    float32 (dimensions,). created: seconds since 1970.
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
    vector: Vector | None = None
    created: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What the model did: `tokens` of the answer, int32 (n,); `logprobs` of the first of them, float16 (up to n,) or
    None; and the residual stream at `layers`, float16 (layers, hidden_size) each: at the prompt's last token, and the
    mean over these tokens. None where the person went on before they were read."""

    tokens: np.ndarray
    logprobs: np.ndarray | None = None
    layers: tuple[str, ...] = ()
    last: np.ndarray | None = None
    mean: np.ndarray | None = None

    def to_bytes(self) -> bytes:
        arrays = {name: getattr(self, name) for name in ("tokens", "logprobs", "last", "mean")}
        return write_safetensors(
            {name: array for name, array in arrays.items() if array is not None}, {"layers": " ".join(self.layers)}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Trace:
        """Raises SafetensorsError for what is no trace."""
        arrays, metadata = read_safetensors(data)
        if "tokens" not in arrays or not arrays.keys() <= {"tokens", "logprobs", "last", "mean"}:
            raise SafetensorsError("trajectory.other-tensors", "These are not an answer's tokens and states.")
        return cls(**arrays, layers=tuple(metadata.get("layers", "").split()))


class Trajectories:
    """The trajectories of a store. Every method that waits may raise StoreError."""

    def __init__(
        self,
        store: Store,
        writer: BatchedWriter | None = None,
        *,
        most_age: float = MOST_AGE_SECONDS,
        most: int = MOST_TRAJECTORIES,
        recent: int = RECENT,
    ) -> None:
        self._store = store
        self._writer = writer or BatchedWriter(store)
        self._most_age, self._most = most_age, most
        self.recent: deque[Trajectory] = deque(maxlen=recent)
        """The latest of this program, the newest last."""
        store.on_change(self._note)

    def record(self, trajectory: Trajectory) -> Trajectory:
        """Keep it; waits for nothing. Returns it as it is kept: with its time, and long texts cut off."""
        trajectory = replace(
            trajectory,
            asked=trajectory.asked[:KEPT_TEXT],
            answered=trajectory.answered[:KEPT_TEXT],
            created=trajectory.created or self._store.clock(),
        )
        self._writer.put(_record(trajectory))
        self.recent.append(trajectory)
        return trajectory

    async def get(self, id: str) -> Trajectory | None:
        await self._writer.flush()
        record = await self._store.get(KIND, id)
        return trajectory_of(record) if record else None

    async def all(self, *, since: float | None = None, limit: int | None = None) -> list[Trajectory]:
        """The newest first."""
        await self._writer.flush()
        records = await self._store.query(KIND, since=since, newest_first=True, limit=limit)
        return [trajectory_of(record) for record in records]

    async def of_lesson(self, lesson: str) -> list[Trajectory]:
        """The answers that a lesson gave, the newest first."""
        await self._writer.flush()
        return [trajectory_of(r) for r in await self._store.query(KIND, {"lesson": lesson}, newest_first=True)]

    async def change(self, id: str, change: Callable[[Trajectory], Trajectory]) -> Trajectory | None:
        """Replace it by `change` of it, which may be called again. None where it is not there any more."""
        await self._writer.flush()
        record = await self._store.update(KIND, id, lambda record: _record(change(trajectory_of(record))))
        if record is None:
            return None
        changed = trajectory_of(record)
        for place, trajectory in enumerate(self.recent):
            if trajectory.id == id:
                self.recent[place] = changed
        return changed

    async def keep_trace(self, id: str, trace: Trace) -> None:
        """Nothing is kept where the trajectory was deleted meanwhile."""
        await self._writer.flush()
        await self._store.put_blob(trace_name(id), trace.to_bytes())
        if await self._store.get(KIND, id) is None:
            await self.delete(id)

    async def trace(self, id: str) -> Trace | None:
        """None where there is none: exports have none, and a person may go on before it is made."""
        data = await self._store.get_blob(trace_name(id))
        try:
            return None if data is None else Trace.from_bytes(data)
        except SafetensorsError:
            return None

    async def delete(self, *ids: str) -> None:
        """With their traces."""
        await self._writer.flush()
        async with self._store.transaction() as transaction:
            self.delete_in(transaction, ids)

    def delete_in(self, transaction: Transaction, ids: Iterable[str]) -> None:
        """As `delete`, together with what else the transaction does."""
        for id in ids:
            transaction.delete(KIND, id)

    async def delete_lost_traces(self) -> int:
        """Delete traces whose trajectories are gone, as when the program ended between the two. Returns how many."""
        await self._writer.flush()
        names = {name for _, name in await self._store.keys_starting_with(BLOB, blob_name(KIND, ""))}
        known = [record.id async for record in self._store.scan(KIND)]
        lost = names - {trace_name(id) for id in known}
        await self._store.delete(BLOB, *lost)
        return len(lost)

    async def retain(self) -> int:
        """Delete those that are too old, and the oldest ones beyond the limit. Returns how many were deleted."""
        await self._writer.flush()
        gone = [r.id for r in await self._store.query(KIND, before=self._store.clock() - self._most_age)]
        too_many = await self._store.count(KIND) - len(gone) - self._most
        if too_many > 0:
            gone = [record.id for record in await self._store.query(KIND, limit=len(gone) + too_many)]
        if gone:
            await self.delete(*gone)
        return len(gone)

    def _note(self, change: Change) -> None:
        """What is deleted leaves the ring buffer, too."""
        gone = {id for kind, id in change.deletes if kind == KIND}
        if change.cleared is not None or change.everything:
            self.recent.clear()  # what is left can be read from the store
        elif gone:
            kept = [trajectory for trajectory in self.recent if trajectory.id not in gone]
            self.recent.clear()
            self.recent.extend(kept)


def trace_name(id: str) -> str:
    """Of the blob; it is deleted with the record."""
    return blob_name(KIND, id, "trace")


def _record(trajectory: Trajectory) -> Record:
    body = asdict(replace(trajectory, vector=None))
    for name in ("id", "vector", "created"):
        del body[name]
    body["effects"] = list(body["effects"])
    return Record(KIND, trajectory.id, body, trajectory.vector, trajectory.created)


def trajectory_of(record: Record) -> Trajectory:
    assert record.created is not None
    values = {**record.body, "effects": tuple(record.body["effects"])}
    return Trajectory(id=record.id, vector=record.vector, created=record.created, **values)
