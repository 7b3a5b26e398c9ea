"""What a record of each kind holds. A record that does not fit is left out wherever records are read or imported.

A schema is a table of fields; a field is a small check. `problem_of` is what everybody calls:

    problem_of(Record("policy", "p", {"value": 3}))    # "A policy needs the field confidence."

A new field of a kind needs a migration (migrations.py), so that older records get it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from py_core.memory.lessons import Source as LessonSource
from py_core.memory.patterns import LEAST_WEIGHT, MOST_WEIGHT, Source
from py_core.memory.records import DEEPEST, LONGEST_NAME, Record
from py_core.memory.revisions import RunVerdict
from py_core.memory.strategies import Verdict
from py_core.memory.styles import StyleVerdict
from py_core.memory.trajectories import Feedback

LONGEST_TEXT = 1_000_000
LONGEST_TITLE = 1_000
LARGEST_INTEGER = 2**53 - 1  # what JavaScript can hold
LATEST = 253_402_300_799.0  # the end of the year 9999, in seconds since 1970
MOST_TURNS = 999_999  # of a conversation
MOST_PARTS = 999  # of a revision of the learned adapter

Check = Callable[[Any], str | None]
"""Gives None if the value fits, else what it should be ("a number from 0 to 1")."""


@dataclass(frozen=True, slots=True)
class Schema:
    """noun: for sentences. fields: all of the body, each required. vector: whether there is one."""

    noun: str
    fields: Mapping[str, Check]
    vector: Literal["required", "optional"] = "optional"
    record: Callable[[Record], str | None] = field(default=lambda record: None)
    """Checks several fields together: a sentence about what does not fit, or None."""


def problem_of(record: Record, dimensions: int | None = None) -> str | None:
    """Why a record is not one of Sonata's, as a sentence; None if it is. dimensions: of each vector, None: any."""
    schema = SCHEMAS.get(record.kind)
    if schema is None:
        return f"Records of the kind {record.kind} are not known."
    noun = schema.noun
    for time in (record.created, record.updated):
        if time is not None and (wanted := _time(time)) is not None:
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


def _text(longest: int = LONGEST_TEXT) -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, str) and len(value) <= longest
        return None if fits else f"text of at most {longest:,} characters"

    return check


def _name(value: Any) -> str | None:
    """Checks a name by the rule for kinds and ids (records.check_name)."""
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return None if fits else f"printable text of 1 to {LONGEST_NAME} characters"


def _number(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a number from {low:g} to {high:g}"

    return check


def _integer(high: int, low: int = 0) -> Check:
    def check(value: Any) -> str | None:
        return None if type(value) is int and low <= value <= high else f"a whole number from {low} to {high:,}"

    return check


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _one_of(*choices: str) -> Check:
    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"

    return check


def _or_null(check: Check) -> Check:
    def check_or_null(value: Any) -> str | None:
        wanted = None if value is None else check(value)
        return None if wanted is None else f"null or {wanted}"

    return check_or_null


def _json(value: Any, depth: int = DEEPEST) -> str | None:
    """Checks that a value is JSON with finite numbers and limited nesting."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text()(value)
    if isinstance(value, int | float):
        fits = math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST_INTEGER
        return None if fits else "JSON with finite numbers"
    if depth == 0 or not isinstance(value, list | dict):
        return f"JSON of at most {DEEPEST} levels"
    parts = value if isinstance(value, list) else [*value, *value.values()]
    return next((wanted for part in parts if (wanted := _json(part, depth - 1)) is not None), None)


def _object(**known: Check) -> Check:
    """A JSON object; what it has of the `known` fields is as they say."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a JSON object"
        for name in known.keys() & value.keys():
            if (wanted := known[name](value[name])) is not None:
                return f"a JSON object whose {name} is {wanted}"
        return _json(value)

    return check


def _names(value: Any) -> str | None:
    fits = isinstance(value, list) and all(_name(each) is None for each in value)
    return None if fits else "a list of names"


def _texts(value: Any) -> str | None:
    fits = isinstance(value, list) and all(_text()(each) is None for each in value)
    return None if fits else "a list of texts"


def _three_numbers(value: Any) -> str | None:
    fits = isinstance(value, list) and len(value) == 3 and all(_number(0, 1e12)(each) is None for each in value)
    return None if fits else "a list of three numbers from 0 on"


def _ranked(value: Any) -> str | None:
    fits = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _name(pair[0]) is None and _number(-1e9, 1e9)(pair[1]) is None
        for pair in value
    )
    return None if fits else "a list of pairs of a name and a number"


def _thinking(value: Any) -> str | None:
    fits = (
        isinstance(value, dict) and _text()(value.get("text")) is None and _number(0, 1e9)(value.get("seconds")) is None
    )
    return None if fits else "a JSON object of a text and its seconds"


def _milliseconds(value: Any) -> str | None:
    check = _number(0, 1e12)
    fits = isinstance(value, dict) and all(_name(name) is None and check(ms) is None for name, ms in value.items())
    return None if fits else "a JSON object of milliseconds"


def _parts(value: Any) -> str | None:
    """Checks the parts of a quality: an object of shares, or null where one is not known."""
    fits = isinstance(value, dict) and all(
        _name(name) is None and _or_null(_share)(v) is None for name, v in value.items()
    )
    return None if fits else "a JSON object of numbers from 0 to 1"


def _objects(value: Any) -> str | None:
    fits = isinstance(value, list) and all(_object()(each) is None for each in value)
    return None if fits else "a list of JSON objects"


def _figures(value: Any) -> str | None:
    check = _number(-1e300, 1e300)
    fits = isinstance(value, dict) and all(_name(name) is None and check(each) is None for name, each in value.items())
    return None if fits else "a JSON object of finite numbers"


def _series(value: Any) -> str | None:
    check = _number(-1e300, 1e300)
    fits = isinstance(value, dict) and all(
        _name(name) is None and isinstance(row, list) and all(check(each) is None for each in row)
        for name, row in value.items()
    )
    return None if fits else "a JSON object of lists of finite numbers"


def _policy_value(value: Any) -> str | None:
    finite = _number(-1e300, 1e300)
    fits = (
        isinstance(value, bool)
        or _integer(LARGEST_INTEGER, -LARGEST_INTEGER)(value) is None
        or (isinstance(value, float) and finite(value) is None)
        or _text()(value) is None
        or (isinstance(value, list) and all(finite(each) is None for each in value))
    )
    return None if fits else "true, false, a finite number, text or a list of finite numbers"


def _turn_is_of_its_session(record: Record) -> str | None:
    """A conversation finds its turns by their ids."""
    of_it = record.id.startswith(f"{record.body['session']}/")
    return None if of_it else "The id of a message begins with that of its conversation."


_time = _number(0, LATEST)
_share = _number(0, 1)

SCHEMAS: Mapping[str, Schema] = {
    "pattern": Schema(
        "a pattern",
        {
            "text": _text(),
            "agent": _name,
            "weight": _number(LEAST_WEIGHT, MOST_WEIGHT),
            "uses": _integer(LARGEST_INTEGER),
            "source": _one_of(*get_args(Source)),
            "last_used": _time,
        },
        vector="required",
    ),
    "lesson": Schema(
        "a lesson",
        {
            "question": _text(),
            "answer": _text(),
            "source": _one_of(*get_args(LessonSource)),
            "on": _boolean,
            "replaced_by": _text(LONGEST_NAME),
            "quality": _share,
            "uses": _integer(LARGEST_INTEGER),
            "last_used": _time,
        },
    ),
    "consolidation": Schema(
        "a run of the background loop",
        {
            "base_sha256": _text(LONGEST_NAME),
            "revision": _integer(LARGEST_INTEGER),
            "parent": _integer(LARGEST_INTEGER),
            "verdict": _one_of(*get_args(RunVerdict)),
            "why": _text(),
            "scale": _share,
            "lessons": _names,
            "new": _names,
            "on": _boolean,
            "has_weights": _boolean,
            "model": _text(),
            "backend": _text(),
            "recipe": _object(),
            "probe": _figures,
            "recall": _figures,
            "steps": _series,
            "norm": _number(0, 1e300),
            "tokens": _integer(LARGEST_INTEGER),
            "seconds": _number(0, 1e12),
        },
    ),
    "weights": Schema(
        "a part of what was learned",
        {
            "base_sha256": _text(LONGEST_NAME),
            "revision": _integer(LARGEST_INTEGER, 1),
            "part": _integer(MOST_PARTS),
            "parts": _integer(MOST_PARTS, 1),
            "sha256": _text(LONGEST_NAME),
            "data": _text(),
        },
    ),
    "policy": Schema(
        "a policy",
        {
            "value": _policy_value,
            "confidence": _share,
            "source": _name,
            "last_used": _time,
            "observations": _integer(LARGEST_INTEGER),
            "changed": _time,
        },
    ),
    "session": Schema(
        "a conversation",
        {
            "title": _text(LONGEST_TITLE),
            "turns": _integer(MOST_TURNS),
            "adapter": _or_null(_name),
            "state": _object(),
        },
    ),
    "strategy": Schema(
        "a strategy",
        {
            "examples": _texts,
            "agent": _text(LONGEST_NAME),
            "verdict": _one_of(*get_args(Verdict)),
            "quality": _share,
            "count": _integer(LARGEST_INTEGER),
            "known": _number(0, 1e12),
            "good": _number(0, 1e12),
            "archived": _three_numbers,
            "last_used": _time,
        },
        vector="required",
    ),
    "style": Schema(
        "a style",
        {
            "base_sha256": _text(LONGEST_NAME),
            "verdict": _one_of(*get_args(StyleVerdict)),
            "why": _text(),
            "revision": _integer(LARGEST_INTEGER),
            "sources": _names,
            "held": _names,
            "made_of": _text(LONGEST_NAME),
            "figures": _figures,
            "steps": _series,
            "weights": _text(),
        },
    ),
    "trajectory": Schema(
        "an answer's trajectory",
        {
            "asked": _text(),
            "answered": _text(),
            "session": _text(LONGEST_NAME),
            "agent": _text(LONGEST_NAME),
            "model": _text(LONGEST_NAME),
            "reason": _text(LONGEST_NAME),
            "route": _object(why=_text(), confidence=_number(-1e9, 1e9), patterns=_names, recalled=_share, read=_names),
            "lesson": _text(LONGEST_NAME),
            "stages": _milliseconds,
            "prompt_tokens": _integer(LARGEST_INTEGER),
            "new_tokens": _integer(LARGEST_INTEGER),
            "logprob": _or_null(_number(-1e9, 0)),
            "again": _boolean,
            "feedback": _one_of(*get_args(Feedback)),
            "kept": _or_null(_share),
            "parts": _parts,
            "quality": _or_null(_share),
            "effects": _objects,
        },
    ),
    "turn": Schema(
        "a message",
        {
            "session": _name,
            "role": _one_of("user", "assistant", "system", "tool"),
            "content": _text(),
            "details": _object(
                agent=_or_null(_name),
                request=_text(),
                route=_object(
                    id=_text(),
                    title=_text(),
                    reason=_text(),
                    confidence=_number(-1e9, 1e9),
                    threshold=_number(-1e9, 1e9),
                    ranked=_ranked,
                ),
                reason=_text(),
                tokens=_integer(LARGEST_INTEGER),
                thinking=_or_null(_thinking),
                lesson=_or_null(_object(id=_name, question=_text(), confidence=_share, read=_objects)),
                taught=_or_null(_object(id=_name, question=_text(), answer=_text())),
                adapter=_text(),
            ),
        },
        record=_turn_is_of_its_session,
    ),
    "witness": Schema(
        "a log entry",
        {
            "agent": _text(LONGEST_NAME),
            "backend": _text(LONGEST_NAME),
            "stages": _milliseconds,
            "routing": _object(text=_text(), confidence=_or_null(_share), adapter=_text()),
            "quality": _or_null(_share),
            "error": _or_null(_text()),
            "failed": _boolean,
        },
    ),
}
