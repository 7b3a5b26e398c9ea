"""Lessons that a person taught: a question and its answer, as text, so that every model can learn them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from app.records.revisions import Revisions
from py_core.store import field_checks as checks
from py_core.store.errors import StoreError
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind
from py_core.store.records import LONGEST_NAME, Record, Vector
from py_core.store.rows import ATTEMPTS
from py_core.store.store import Store
from py_core.store.transaction import Transaction

KIND = "lesson"

Source = Literal["taught", "corrected", "praised"]
"""The person wrote question and answer, or a better answer, or approved of the answer."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Times are seconds since 1970.

    vector: of the question's meaning, float32 (dimensions,), of length 1; None until it is known. on: True if the
    lesson may answer. replaced_by: the id of a newer lesson for the same question, "" for none. A replaced lesson is
    history. quality: 0 to 1, from what the person said about its answers. uses: the number of answers that it gave.
    before: the answer that the person corrected with the lesson, "" if there was none or it was not kept.
    """

    question: str
    answer: str
    source: Source = "taught"
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    vector: Vector | None = field(default=None, compare=False, repr=False)
    on: bool = True
    replaced_by: str = ""
    quality: float = 1.0
    uses: int = field(default=0, compare=False)
    before: str = field(default="", compare=False)
    created: float = field(default=0.0, compare=False)
    last_used: float = field(default=0.0, compare=False)

    @property
    def answers(self) -> bool:
        """True if messages may be answered with the lesson."""
        return self.on and not self.replaced_by


class Lessons:
    """The lessons of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revisions = Revisions(store)

    async def keep(self, lesson: Lesson, replaces: tuple[str, ...] = ()) -> Lesson:
        """Store a new or a deleted lesson as it is. In one transaction, the lessons that it replaces become history."""
        now = self._store.clock()
        kept = replace(lesson, created=lesson.created or now, last_used=lesson.last_used or now)
        for _ in range(ATTEMPTS):
            transaction = Transaction()
            for record in await self._store.get_many([(KIND, id) for id in replaces]):
                transaction.expect(KIND, record.id, record.version)
                transaction.put(_record(replace(lesson_of(record), replaced_by=kept.id)))
            transaction.put(_record(kept))
            try:
                await self._store.commit(transaction)
                return kept
            except StoreError as error:
                if error.reason != "conflict":
                    raise
        raise StoreError("conflict")

    async def get(self, id: str) -> Lesson | None:
        record = await self._store.get(KIND, id)
        return lesson_of(record) if record else None

    async def all(self) -> list[Lesson]:
        """All lessons, oldest first, including history."""
        return [lesson_of(record) for record in await self._store.query(KIND)]

    async def settled(self) -> list[Lesson]:
        """All lessons, as `all`. If several are current for the same question, as after an import, the newest stays
        current and the others become its history."""
        current = dict[str, Lesson]()
        found = await self.all()
        for lesson in found:
            if not lesson.replaced_by:
                older = current.get(plain(lesson.question))
                current[plain(lesson.question)] = lesson
                if older is not None:
                    await self.edit(older.id, replaced_by=lesson.id)
        return await self.all() if len(current) < sum(not one.replaced_by for one in found) else found

    async def edit(self, id: str, **changes: Any) -> Lesson | None:
        """Change any fields but id and created. Returns None if there is no such lesson."""
        return await self._change(id, lambda lesson: replace(lesson, **changes))

    async def use(self, id: str) -> Lesson | None:
        """Note that the lesson gave an answer just now. Returns None if there is no such lesson."""
        now = self._store.clock()
        return await self._change(id, lambda lesson: replace(lesson, uses=lesson.uses + 1, last_used=now))

    async def delete(self, *ids: str) -> None:
        """Delete lessons, and what the background loop made of them: the numbers of each revision that knows one."""
        async with self._store.transaction() as transaction:
            for id in ids:
                transaction.delete(KIND, id)
            await self._revisions.forget_lessons(ids, transaction)

    async def undo(self, id: str) -> list[Lesson]:
        """Delete a lesson, as `delete`, and make the lessons that it replaced current again, in one transaction.
        Returns these.

        A lesson whose question got a newer answer meanwhile stays history: that of the newer lesson.
        """
        for _ in range(ATTEMPTS):
            transaction, before = Transaction(), list[Lesson]()
            records = {record.id: record for record in await self._store.query(KIND) if record.id != id}
            lessons = {record.id: lesson_of(record) for record in records.values()}
            for lesson in reversed([one for one in lessons.values() if one.replaced_by == id]):
                newer = _current(lesson.question, list(lessons.values()))
                lessons[lesson.id] = back = replace(lesson, replaced_by=newer.id if newer else "")
                before = before if newer else [back, *before]
                transaction.expect(KIND, back.id, records[back.id].version)
                transaction.put(_record(back))
            transaction.delete(KIND, id)
            await self._revisions.forget_lessons([id], transaction)
            try:
                await self._store.commit(transaction)
                return before
            except StoreError as error:
                if error.reason != "conflict":
                    raise
        raise StoreError("conflict")

    async def restore(self, lesson: Lesson) -> Lesson:
        """Store a deleted lesson again as it was. It becomes history if its question got a newer answer meanwhile."""
        newer = None if lesson.replaced_by else _current(lesson.question, await self.all())
        return await self.keep(replace(lesson, replaced_by=newer.id) if newer else lesson)

    async def _change(self, id: str, change: Callable[[Lesson], Lesson]) -> Lesson | None:
        record = await self._store.update(KIND, id, lambda record: _record(change(lesson_of(record))))
        return lesson_of(record) if record else None


def plain(question: str) -> str:
    """The question without capitals, spaces and signs at its end. Questions with equal results are the same."""
    return " ".join(question.rstrip(" ?!.").lower().split())


def _current(question: str, lessons: Sequence[Lesson]) -> Lesson | None:
    """The last lesson that was taught for a question and is not history. lessons: oldest first."""
    same = (one for one in reversed(lessons) if not one.replaced_by and plain(one.question) == plain(question))
    return next(same, None)


def _record(lesson: Lesson) -> Record:
    values = asdict(lesson)
    for name in ("id", "vector", "created"):
        del values[name]
    return Record(KIND, lesson.id, values, lesson.vector, lesson.created)


def lesson_of(record: Record) -> Lesson:
    """The lesson in a record of KIND, as returned by a search by meaning."""
    assert record.created is not None
    return Lesson(id=record.id, vector=record.vector, created=record.created, **record.body)


def _with_before(record: Record, partner: Record | None) -> Record:
    """Add `before`, which is kept since version 7. If the answer's trajectory still exists, the page finds it there."""
    return replace(record, body={"before": "", **record.body})


LESSONS = Kind(
    KIND,
    ("fact that you taught", "facts that you taught"),
    {
        "question": checks.text(),
        "answer": checks.text(),
        "source": checks.one_of(*get_args(Source)),
        "on": checks.boolean,
        "replaced_by": checks.text(LONGEST_NAME),
        "quality": checks.share,
        "uses": checks.integer(LARGEST_INTEGER),
        "last_used": checks.time,
        "before": checks.text(),
    },
    has_blobs=True,
    migrations={6: _with_before},
)
