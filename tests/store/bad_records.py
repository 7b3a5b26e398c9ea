"""A good export, and files like it with a record or two that no version of Sonata wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from app.records.files import Passage, StoredFile
from app.records.lessons import Lesson
from app.records.memory import Memory
from app.records.revisions import Run
from app.records.sessions import Turn
from py_core.learning.strategies import Strategy
from py_core.learning.trajectories import Trajectory
from py_core.routing.embedder import DIMENSIONS
from py_core.routing.patterns import Pattern
from py_core.store.packing import pack
from py_core.store.rows import LAYOUT, Row
from py_core.store.store import Store
from py_core.store.transfer import FORMAT, VERSION
from py_core.store.volatile import VolatileRows
from tests.store.places import ANY_BODY

VECTOR = np.eye(1, DIMENSIONS, dtype=np.float32)[0]
NAN, INFINITE = (np.full(DIMENSIONS, value, np.float32).tobytes() for value in (np.nan, np.inf))
PATTERN, SESSION, TURN, POLICY, LESSON, TRAJECTORY, STRATEGY, CONSOLIDATION, WEIGHTS = range(9)


async def good_rows() -> list[Row]:
    """A row of each kind, as export has it."""
    rows = VolatileRows()
    memory = await Memory.open(await Store.open(rows, clock=lambda: 1000.0, kinds=ANY_BODY))
    await memory.patterns.add_many([Pattern("user-1", "count the sheep", VECTOR, "planner")])
    session = await memory.sessions.start("Sheep")
    await memory.sessions.add_turns(session.id, Turn("user", "How many sheep?", details={"agent": "planner"}))
    await memory.policies.set("answers.length", 3, confidence=0.5, source="learned")
    await memory.lessons.keep(Lesson("How many sheep?", "You have seven sheep.", vector=VECTOR))
    await memory.strategies.replace_all([Strategy("s1", VECTOR, ("How many sheep?",), last_used=1000.0)])
    route = {"why": "clear", "confidence": 0.9, "patterns": ["user-1"]}
    memory.trajectories.record(Trajectory("a1", "How many sheep?", "Seven.", session.id, route=route, vector=VECTOR))
    await memory.revisions.keep(Run("0" * 64, "accepted", "It gives all answers.", lessons=("l1",)), b"numbers")
    file = await memory.files.keep(StoredFile(session.id, "sheep.txt", "text/plain", 13, "Seven sheep.\n"))
    await memory.files.keep_passages(file, [(0, Passage(0, 13, "line 1", "minilm", VECTOR))])
    await memory.writer.flush()
    found = {row.kind: replace(row, fields=()) for row in await rows.scan(None, None, 100)}
    kinds = "pattern session turn policy lesson trajectory strategy consolidation weights file passage"
    return [found[kind] for kind in kinds.split()]


def file_of(rows: Sequence[Row]) -> bytes:
    """An export with these rows, whatever they contain, with a correct checksum."""
    head, data = pack(rows)
    rest = json.dumps(head).encode() + b"\n" + data
    digest = hashlib.sha256(rest).hexdigest()
    first = {"format": FORMAT, "version": VERSION, "schema": LAYOUT, "records": len(rows), "bytes": len(rest)}
    return json.dumps({**first, "sha256": digest, "key": None}).encode() + b"\n" + rest


def with_body(row: Row, **changes: Any) -> Row:
    """The row with these fields in its body; `...` removes a field."""
    body = {name: value for name, value in {**json.loads(row.body), **changes}.items() if value is not ...}
    return replace(row, body=json.dumps(body).encode())


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, 0, -1, 0.5, 10**7, 10**30, -1e308, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "\0", "\ud800", "planner", "user", "😀" * 300, "long " * 250_000]),
    st.sampled_from([[], [1, 2], {}, {"agent": {"a": 1}}, {"text": 5}, {"confidence": "x"}, {"\ud800": "\udfff"}]),
    st.sampled_from([nested(40), nested(60), {"state": nested(45)}]),
)
BODIES = st.sampled_from(
    [b"", b"[]", b"{", b"null", b'{"a":NaN}', b'{"a":1e999}', b"\xff", b'{"a":' + b"9" * 5000 + b"}", b"[" * 200_000]
) | st.binary(max_size=20)
VECTORS = st.sampled_from([None, b"", b"123", b"\0" * 4, VECTOR.tobytes()[4:], VECTOR.tobytes() * 2, NAN, INFINITE])


@dataclass(frozen=True)
class BadFile:
    """untouched: keys of the unchanged rows."""

    data: bytes = field(repr=False)
    rows: list[Row] = field(repr=False)
    untouched: set[tuple[str, str]]


@st.composite
def bad_files(draw: st.DrawFn, good: list[Row]) -> BadFile:
    """One to three rows changed, each once."""
    rows = list(good)
    touched = draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=3, unique=True))
    for place in touched:
        row = rows[place]
        names = sorted(json.loads(row.body))
        rows[place] = draw(
            st.one_of(
                st.builds(lambda name, row=row: with_body(row, **{name: ...}), st.sampled_from(names)),
                st.builds(lambda junk, row=row: with_body(row, added=junk), JUNK),
                st.builds(lambda name, junk, row=row: with_body(row, **{name: junk}), st.sampled_from(names), JUNK),
                st.builds(lambda body, row=row: replace(row, body=body), BODIES),
                st.builds(lambda vector, row=row: replace(row, vector=vector), VECTORS),
                st.builds(
                    lambda id, row=row: replace(row, id=id), st.sampled_from(["", "a\0b", "\ud800", "x" * 300, "other"])
                ),
                st.builds(
                    lambda kind, row=row: replace(row, kind=kind), st.sampled_from(["policy", "turn", "unknown", ""])
                ),
                st.builds(
                    lambda created, row=row: replace(row, created=created, updated=created),
                    st.sampled_from([-1.0, 1e18, 1e299]),
                ),
                st.builds(
                    lambda name, row=row: with_body(replace(row, id=name), value=5),
                    st.sampled_from(["routing.agents", "routing.embedder"]),
                ),
            )
        )
        if draw(st.booleans()):
            rows.append(rows[place])  # twice
    return BadFile(file_of(rows), rows, {good[place].key for place in range(len(good)) if place not in touched})
