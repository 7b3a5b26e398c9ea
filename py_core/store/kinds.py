"""Kinds of records. The store knows none by itself: each feature describes those that it keeps, and `Kinds` holds them.

    NOTES = Kind("note", ("note", "notes"), {"text": checks.text()}, indexed=("text",))
    store = await Store.open(rows, kinds=Kinds([NOTES]))
    store.kinds.problem_of(Record("note", "n"))  # "A note needs the field text."

A new field of a kind needs a migration, so that older records get it; so does a new indexed field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from py_core.messages import Message
from py_core.store import field_checks as checks
from py_core.store.field_checks import Check
from py_core.store.records import Record
from py_core.store.rows import Key

Migration = Callable[[Record, Record | None], Record | None]
"""Gets a record, and the record of the same id of the kind's `partner` if there is one. Returns the record in the form
of the next version; None drops it."""


ALL = ("",)
"""For `Kind.retired`: each record of the kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records.

    name: `Record.kind`. nouns: singular and plural, for people. fields: all fields of the body with their checks, each
    required; None: any body. vector: whether a record has one. problem: checks several fields together, and returns a
    sentence or None. indexed: fields that `Store.query` can ask for.

    has_blobs: records may have blobs (blobs.py). part_of: the kind of a larger thing, if a record is a part of one: its
    id begins with the id of the whole and "/", and each change of a part also writes the whole.

    migrations: by the version that they start from. partner: the kind of another record that the migrations read.
    retired: beginnings of the ids of records that older versions wrote and nothing reads any more. They are deleted
    when a store opens, and imports leave them out: unlike a migration, this does not write every record again.
    """

    name: str
    nouns: tuple[str, str] = ("item", "items")
    fields: Mapping[str, Check] | None = None
    vector: Literal["required", "optional"] = "optional"
    problem: Callable[[Record], str | None] = lambda record: None
    indexed: tuple[str, ...] = ()
    has_blobs: bool = False
    part_of: str = ""
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    partner: str = ""
    retired: tuple[str, ...] = ()

    def noun(self, count: int) -> Message:
        """The noun that follows a number."""
        form = "one" if count == 1 else "other"
        return Message(f"kind.{self.name}.{form}", self.nouns[count != 1])

    def problem_of(self, record: Record, dimensions: int | None) -> str | None:
        """The reason why a record of this kind is invalid, as a sentence; None if it is valid."""
        noun = f"a {self.nouns[0]}"
        for time in (record.created, record.updated):
            if time is not None and (wanted := checks.time(time)) is not None:
                return f"The time of {noun} is {wanted}."
        if self.fields is not None:
            for name in self.fields.keys() - record.body.keys():
                return f"{noun.capitalize()} needs the field {name}."
            for name in record.body.keys() - self.fields.keys():
                return f"{noun.capitalize()} has no field {name!r:.100}."
            for name, check in self.fields.items():
                if (wanted := check(record.body[name])) is not None:
                    return f"The {name} of {noun} is {wanted}."
        if record.vector is None and self.vector == "required":
            return f"{noun.capitalize()} needs a vector."
        if record.vector is not None and dimensions is not None and len(record.vector) != dimensions:
            return f"The vector of {noun} has {dimensions} numbers."
        return self.problem(record)


class Kinds:
    """The kinds of records that a store keeps.

    dimensions: of each vector; None: any. others: records of other kinds are kept as well, without checks.
    """

    def __init__(self, kinds: Iterable[Kind] = (), *, dimensions: int | None = None, others: bool = False) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._dimensions, self._others = dimensions, others

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    @property
    def in_use(self) -> list[Kind]:
        """The kinds of which new records may be written: without those that are retired as a whole."""
        return [kind for kind in self if kind.retired != ALL]

    def __getitem__(self, name: str) -> Kind:
        """The kind of this name; one without any rules if there is none."""
        return self._kinds.get(name) or Kind(name)

    def problem_of(self, record: Record) -> str | None:
        """The reason why a record is invalid, as a sentence; None if it is valid."""
        kind = self._kinds.get(record.kind)
        if kind is None and self._others:
            return None
        if kind is None or kind.retired == ALL:
            return f"Records of the kind {record.kind} are not known."
        return kind.problem_of(record, self._dimensions)

    def partner_of(self, key: Key, version: int) -> Key | None:
        """The key of the other record that the migrations of a record of this version read."""
        name, id = key
        kind = self[name]
        return (kind.partner, id) if kind.partner and version <= max(kind.migrations) else None

    def migrated(self, record: Record, version: int, target: int, partner: Record | None = None) -> Record | None:
        """`record`, of an old version, in the form of version `target`; None if it is dropped.

        partner: the record of `partner_of`, in the old version, if it exists.
        """
        for step in range(version, target):
            migration = self[record.kind].migrations.get(step)
            migrated = migration(record, partner) if migration else record
            if migrated is None:
                return None
            record = migrated
        return record

    def is_retired(self, key: Key) -> bool:
        kind, id = key
        return id.startswith(self[kind].retired)


ANY = Kinds(others=True)
"""Keeps any record, without checks, indexes and migrations."""
