"""Schemas of the records of each kind. A record that does not fit is skipped wherever records are read or imported.

A schema is a table of fields; a field is a small check. Callers use `problem_of`:

    problem_of(Record("policy", "p", {"value": 3}))    # "A policy needs the field confidence."

A new field of a kind needs a migration (migrations.py), so that older records get it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from py_core.memory import field_checks as checks
from py_core.memory.field_checks import LARGEST_INTEGER, Check
from py_core.memory.lessons import Source as LessonSource
from py_core.memory.patterns import LEAST_WEIGHT, MOST_WEIGHT, Source
from py_core.memory.records import LONGEST_NAME, Record
from py_core.memory.revisions import RunVerdict
from py_core.memory.sessions import Titled
from py_core.memory.strategies import Verdict
from py_core.memory.styles import StyleVerdict
from py_core.memory.trajectories import Opinion

LONGEST_TITLE = 1_000
MOST_TURNS = 999_999  # of a conversation
MOST_PARTS = 999  # of a revision of the learned adapter


@dataclass(frozen=True, slots=True)
class Schema:
    """noun: for sentences. fields: all of the body, each required. vector: True if the record has one."""

    noun: str
    fields: Mapping[str, Check]
    vector: Literal["required", "optional"] = "optional"
    record: Callable[[Record], str | None] = field(default=lambda record: None)
    """Checks several fields together. Returns a sentence about the problem, or None."""


def problem_of(record: Record, dimensions: int | None = None) -> str | None:
    """The reason why a record is invalid, as a sentence; None if it is valid. dimensions: of each vector, None: any."""
    schema = SCHEMAS.get(record.kind)
    if schema is None:
        return f"Records of the kind {record.kind} are not known."
    noun = schema.noun
    for time in (record.created, record.updated):
        if time is not None and (wanted := checks.time(time)) is not None:
            return f"The time of {noun} is {wanted}."
    if record.body.keys() != schema.fields.keys():
        for name in schema.fields.keys() - record.body.keys():
            return f"{noun.capitalize()} needs the field {name}."
        for name in record.body.keys() - schema.fields.keys():
            return f"{noun.capitalize()} has no field {name!r:.100}."
    for name, check in schema.fields.items():
        if (wanted := check(record.body[name])) is not None:
            return f"The {name} of {noun} is {wanted}."
    if record.vector is None:
        return f"{noun.capitalize()} needs a vector." if schema.vector == "required" else schema.record(record)
    if dimensions is not None and len(record.vector) != dimensions:
        return f"The vector of {noun} has {dimensions} numbers."
    return schema.record(record)


def _turn_is_of_its_session(record: Record) -> str | None:
    """Check a turn: a conversation finds its turns by their ids, and a turn follows an earlier one."""
    session, _, number = record.id.rpartition("/")
    if session != record.body["session"] or not (len(number) == 6 and number.isascii() and number.isdigit()):
        return "The id of a message is that of its conversation and the message's number."
    after = record.body["after"]
    return None if after is None or after < int(number) else "A message follows an earlier one."


def _is_of_its_session(record: Record) -> str | None:
    """Check a file's id: a conversation finds its files by their ids."""
    of_it = record.id.startswith(f"{record.body['session']}/")
    return None if of_it else "The id of a file begins with that of its conversation."


def _is_of_its_file(record: Record) -> str | None:
    """Check a passage's id: a file finds its parts by their ids, and each has its number in it."""
    file, _, number = record.id.rpartition("/")
    of_it = file == record.body["file"] and file.startswith(f"{record.body['session']}/") and number.isdecimal()
    return None if of_it and number.isascii() else "The id of a part of a file is that of its file and a number."


SCHEMAS: Mapping[str, Schema] = {
    "pattern": Schema(
        "a pattern",
        {
            "text": checks.text(),
            "agent": checks.name,
            "weight": checks.number(LEAST_WEIGHT, MOST_WEIGHT),
            "uses": checks.integer(LARGEST_INTEGER),
            "source": checks.one_of(*get_args(Source)),
            "last_used": checks.time,
        },
        vector="required",
    ),
    "lesson": Schema(
        "a lesson",
        {
            "question": checks.text(),
            "answer": checks.text(),
            "source": checks.one_of(*get_args(LessonSource)),
            "on": checks.boolean,
            "replaced_by": checks.text(LONGEST_NAME),
            "quality": checks.share,
            "uses": checks.integer(LARGEST_INTEGER),
            "last_used": checks.time,
            "before": checks.text(),
        },
    ),
    "consolidation": Schema(
        "a run of the background loop",
        {
            "base_sha256": checks.text(LONGEST_NAME),
            "revision": checks.integer(LARGEST_INTEGER),
            "parent": checks.integer(LARGEST_INTEGER),
            "verdict": checks.one_of(*get_args(RunVerdict)),
            "why": checks.words,
            "scale": checks.share,
            "lessons": checks.names,
            "new": checks.names,
            "on": checks.boolean,
            "has_weights": checks.boolean,
            "model": checks.text(),
            "backend": checks.text(),
            "recipe": checks.object_of(),
            "probe": checks.figures,
            "recall": checks.figures,
            "steps": checks.series,
            "norm": checks.number(0, 1e300),
            "tokens": checks.integer(LARGEST_INTEGER),
            "seconds": checks.number(0, 1e12),
        },
    ),
    "weights": Schema(
        "a part of what was learned",
        {
            "base_sha256": checks.text(LONGEST_NAME),
            "revision": checks.integer(LARGEST_INTEGER, 1),
            "part": checks.integer(MOST_PARTS),
            "parts": checks.integer(MOST_PARTS, 1),
            "sha256": checks.text(LONGEST_NAME),
            "data": checks.text(),
        },
    ),
    "policy": Schema(
        "a policy",
        {
            "value": checks.policy_value,
            "confidence": checks.share,
            "source": checks.name,
            "last_used": checks.time,
            "observations": checks.integer(LARGEST_INTEGER),
            "changed": checks.time,
        },
    ),
    "session": Schema(
        "a conversation",
        {
            "title": checks.text(LONGEST_TITLE),
            "turns": checks.integer(MOST_TURNS),
            "adapter": checks.or_null(checks.name),
            "state": checks.object_of(),
            "leaf": checks.or_null(checks.integer(MOST_TURNS)),
            "pinned": checks.boolean,
            "archived": checks.boolean,
            "titled": checks.one_of(*get_args(Titled)),
            "said": checks.time,
        },
    ),
    "strategy": Schema(
        "a strategy",
        {
            "examples": checks.texts,
            "agent": checks.text(LONGEST_NAME),
            "verdict": checks.one_of(*get_args(Verdict)),
            "quality": checks.share,
            "count": checks.integer(LARGEST_INTEGER),
            "known": checks.number(0, 1e12),
            "good": checks.number(0, 1e12),
            "archived": checks.three_numbers,
            "last_used": checks.time,
        },
        vector="required",
    ),
    "style": Schema(
        "a style",
        {
            "base_sha256": checks.text(LONGEST_NAME),
            "verdict": checks.one_of(*get_args(StyleVerdict)),
            "why": checks.words,
            "revision": checks.integer(LARGEST_INTEGER),
            "sources": checks.names,
            "held": checks.names,
            "made_of": checks.text(LONGEST_NAME),
            "figures": checks.figures,
            "steps": checks.series,
            "weights": checks.text(),
        },
    ),
    "file": Schema(
        "a file",
        {
            "session": checks.name,
            "name": checks.name,
            "type": checks.text(LONGEST_NAME),
            "size": checks.integer(LARGEST_INTEGER),
            "text": checks.text(),
        },
        record=_is_of_its_session,
    ),
    "passage": Schema(
        "a part of a file",
        {
            "session": checks.name,
            "file": checks.name,
            "start": checks.integer(LARGEST_INTEGER),
            "end": checks.integer(LARGEST_INTEGER),
            "place": checks.text(LONGEST_NAME),
            "made_by": checks.text(LONGEST_NAME),
        },
        vector="required",
        record=_is_of_its_file,
    ),
    "trajectory": Schema(
        "an answer's trajectory",
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
    ),
    "turn": Schema(
        "a message",
        {
            "session": checks.name,
            "after": checks.or_null(checks.integer(MOST_TURNS)),
            "role": checks.one_of("user", "assistant", "system", "tool"),
            "content": checks.text(),
            "details": checks.object_of(
                agent=checks.or_null(checks.name),
                request=checks.text(),
                route=checks.object_of(
                    id=checks.text(),
                    title=checks.text(),
                    reason=checks.text(),
                    confidence=checks.number(-1e9, 1e9),
                    threshold=checks.number(-1e9, 1e9),
                    ranked=checks.ranked,
                ),
                reason=checks.text(),
                tokens=checks.integer(LARGEST_INTEGER),
                thinking=checks.or_null(checks.thinking),
                lesson=checks.or_null(
                    checks.object_of(
                        id=checks.name, question=checks.text(), confidence=checks.share, read=checks.objects
                    )
                ),
                taught=checks.or_null(
                    checks.or_list(checks.object_of(id=checks.name, question=checks.text(), answer=checks.text()))
                ),
                card=checks.object_of(kind=checks.one_of("forgotten", "choose", "listed"), lessons=checks.objects),
                adapter=checks.text(),
                passages=checks.objects,
                found=checks.text(LONGEST_NAME),
            ),
        },
        record=_turn_is_of_its_session,
    ),
}
