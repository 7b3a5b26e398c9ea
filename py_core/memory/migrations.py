"""From the records of one version to those of the next. The layout of tables is the backends' own matter.

1  records, found by kind, id and time
2  records are found by fields of their body as well (records.INDEXED): each is written again, with its fields
3  patterns have the weight that the router learns (0.5 to 2), not half of it under the name quality
4  encrypted memories have a ledger (ledger.py)
5  policies tell how many observations they were made of, and when
6  conversations are trees (branches.py): turns tell which one they follow, conversations what is shown of them
7  lessons keep the answer that was corrected
8  why a training was kept or refused may be a message (py_core/messages.py)
9  an answer has one record: its trajectory has what its log entry (kind witness) told
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from py_core.memory.records import Record, Vector
from py_core.memory.rows import Key

Migration = Callable[[Record], Record | None]
"""A record as the next version has it; None drops it."""


def _same(record: Record) -> Record:
    return record


def _quality_to_weight(record: Record) -> Record:
    """The router stored half of its weight; a value below its least weight counted as the least."""
    quality = record.body.get("quality")
    if record.kind != "pattern" or not isinstance(quality, int | float) or not 0 <= quality <= 1:
        return record  # schemas.py rejects what no version wrote
    body = {name: value for name, value in record.body.items() if name != "quality"}
    return replace(record, body={**body, "weight": min(max(2.0 * quality, 0.5), 2.0)})


def _with_observations(record: Record) -> Record:
    """Add the observations of a policy. It was stored when it was last used, so it was set then or before."""
    if record.kind != "policy":
        return record
    return replace(record, body={"observations": 0, "changed": record.body.get("last_used", 0.0), **record.body})


def _with_branches(record: Record) -> Record:
    """Conversations were straight lines, and nothing but a turn or a new title changed them."""
    if record.kind == "turn":
        number = record.id.rpartition("/")[2]
        if not (number.isascii() and number.isdigit()):
            return record  # schemas.py rejects it
        return replace(record, body={"after": int(number) - 1 if int(number) else None, **record.body})
    if record.kind == "session":
        turns = record.body.get("turns")
        shown = {
            "leaf": turns - 1 if isinstance(turns, int) and turns > 0 else None,
            "pinned": False,
            "archived": False,
            "titled": "",
            "said": record.updated,
        }
        return replace(record, body={**shown, **record.body})
    return record


def _with_before(record: Record) -> Record:
    """Add `before`, which earlier versions did not keep. If the answer's trajectory still exists, the page finds it
    there."""
    return replace(record, body={"before": "", **record.body}) if record.kind == "lesson" else record


_LOG, _TRAJECTORY = "witness", "trajectory"
_ONE_RECORD = 9


def partner_of(key: Key, version: int) -> Key | None:
    """The other record of the same answer, if there were two in this version."""
    kind, id = key
    other = {_LOG: _TRAJECTORY, _TRAJECTORY: _LOG}.get(kind)
    return (other, id) if other and version < _ONE_RECORD else None


def _joined(record: Record, partner: Record | None) -> Record | None:
    """A trajectory with the body of its log entry, which is dropped; `_with_log` reads it."""
    if partner is None:
        return record
    if record.kind == _LOG:
        return None
    return replace(record, body={**record.body, "log": partner.body}, vector=_first(record.vector, partner.vector))


def _first(vector: Vector | None, other: Vector | None) -> Vector | None:
    return other if vector is None else vector


def _with_log(record: Record) -> Record:
    """A log entry without a trajectory becomes one from which nothing is learned."""
    if record.kind not in (_LOG, _TRAJECTORY):
        return record
    body = dict(record.body)
    log, is_alone = (body, True) if record.kind == _LOG else (body.pop("log", {}), False)
    told = log.get("routing")
    routing = told if isinstance(told, dict) else {}
    kept = {name: routing[name] for name in ("why", "confidence", "ranked", "neighbours", "tool", "adapter")
            if routing.get(name) is not None}  # fmt: skip
    new = {
        "backend": log.get("backend", ""), "error": log.get("error"), "failed": log.get("error") is not None,
        "rating": log.get("quality"), "learnable": not is_alone,
    }  # fmt: skip
    if not is_alone:
        route = body.get("route")
        return replace(record, body={**body, "route": {**kept, **(route if isinstance(route, dict) else {})}, **new})
    read = {"read": routing["read"]} if "read" in routing else {}
    alone = {
        "asked": routing.get("text", ""), "answered": "", "session": "", "agent": log.get("agent", ""), "model": "",
        "reason": routing.get("reason", "error"), "route": {**kept, **read}, "lesson": routing.get("lesson", ""),
        "stages": log.get("stages", {}), "prompt_tokens": 0, "new_tokens": routing.get("tokens") or 0, "logprob": None,
        "again": False, "feedback": "", "kept": None, "parts": {}, "quality": None, "effects": [],
    }  # fmt: skip
    return replace(record, kind=_TRAJECTORY, body={**alone, **new})


MIGRATIONS: Mapping[int, Migration] = {
    1: _same, 2: _quality_to_weight, 3: _same, 4: _with_observations, 5: _with_branches, 6: _with_before, 7: _same,
    8: _with_log,
}  # fmt: skip
"""Migrations by the version that they start from."""


def migrate(
    record: Record, version: int, target: int, migrations: Mapping[int, Migration] = MIGRATIONS,
    partner: Record | None = None,
) -> Record | None:  # fmt: skip
    """`record`, of an old version, in the form of version `target`. partner: of `partner_of`, if it exists."""
    joined = _joined(record, partner)
    if joined is None:
        return None
    record = joined
    for step in range(version, target):
        migrated = migrations[step](record)
        if migrated is None:
            return None
        record = migrated
    return record
