"""From the records of one version to those of the next. The layout of tables is the backends' own matter.

1  records, found by kind, id and time
2  records are found by fields of their body as well (records.INDEXED): each is written again, with its fields
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from py_core.memory.records import Record

Migration = Callable[[Record], Record | None]
"""A record as the next version has it; None drops it."""


def _same(record: Record) -> Record:
    return record


MIGRATIONS: Mapping[int, Migration] = {1: _same}
"""By the version that they start from."""


def migrate(
    record: Record, version: int, target: int, migrations: Mapping[int, Migration] = MIGRATIONS
) -> Record | None:
    """`record`, of an old version, as version `target` has it."""
    for step in range(version, target):
        migrated = migrations[step](record)
        if migrated is None:
            return None
        record = migrated
    return record
