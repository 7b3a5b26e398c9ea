"""Styles: how a person likes answers to sound. A record of the kind "style" per model holds the learned numbers.

It names every record that it was learned from. It is deleted in the transaction that deletes one of these, however that
happens (`Store.commit`), so nothing of a forgotten text stays. It is encrypted with the passphrase and included in
exports.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from app.records.lessons import KIND as LESSON
from py_core.adapters.head import HeadAdapter
from py_core.learning.trajectories import KIND as TRAJECTORY
from py_core.messages import Words, words_from
from py_core.store import field_checks as checks
from py_core.store.errors import StoreError
from py_core.store.field_checks import LARGEST_INTEGER
from py_core.store.kinds import Kind, Queries
from py_core.store.records import LONGEST_NAME, Record
from py_core.store.rows import ATTEMPTS, Key
from py_core.store.store import Store
from py_core.store.transaction import Transaction

KIND = "style"
SOURCES = frozenset({LESSON, TRAJECTORY})
"""Kinds of records that a style is learned from."""

StyleVerdict = Literal["accepted", "refused"]


@dataclass(frozen=True)
class Style:
    """base_sha256, revision: the model and its learned adapter that the style belongs to. sources, held: "KIND:ID" of
    the answers that it was learned from, and of those that were only measured; made_of: a digest of all their texts.
    figures: by name ("nll_before", "nll_after", ...), see app/consolidation/style_service.py. steps: by name a number a
    step. weights: its matrices, "" if the style was refused. Times are seconds since 1970.
    """

    base_sha256: str
    verdict: StyleVerdict
    why: Words
    revision: int = 0
    sources: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    made_of: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    weights: str = ""
    created: float = 0.0

    @property
    def adapter(self) -> HeadAdapter | None:
        """The style's adapter; None if there is none, or its numbers are damaged."""
        return _matrices(self.weights)


class Styles:
    """The styles of a store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, base_sha256: str) -> Style | None:
        """The style of a model."""
        record = await self._store.get(KIND, _id(base_sha256))
        return _style(record) if record else None

    async def keep(self, style: Style) -> bool:
        """Replace the model's last style with this one. Return False if something that it was learned from is gone."""
        keys: list[Key] = [_key(source) for source in (*style.sources, *style.held)]
        for _ in range(ATTEMPTS):
            found = await self._store.get_many(keys)
            if len(found) < len(keys):
                return False
            transaction = Transaction()
            for record in found:
                transaction.expect(record.kind, record.id, record.version)
            transaction.put(_record(style, self._store.clock()))
            try:
                await self._store.commit(transaction)
                return True
            except StoreError as error:
                if error.reason != "conflict":
                    raise
        raise StoreError("conflict")

    async def delete(self, base_sha256: str) -> None:
        await self._store.delete(KIND, _id(base_sha256))


async def styles_of(store: Queries, transaction: Transaction) -> list[Key]:
    """The keys of the styles that were learned from something that a transaction deletes."""
    gone = {f"{kind}:{id}" for kind, id in transaction.deletes if kind in SOURCES}
    cleared = transaction.cleared
    if not gone and cleared not in SOURCES:
        return []
    styles = [_style(record) for record in await store.query(KIND)]
    known = [(style, {*style.sources, *style.held}) for style in styles]
    return [
        (KIND, _id(style.base_sha256))
        for style, sources in known
        if gone & sources or any(_key(source)[0] == cleared for source in sources)
    ]


def packed(adapter: HeadAdapter) -> str:
    """Pack an adapter for `Style.weights`. The format is float16, so that a reload gives the same learned values."""
    numbers = np.concatenate([adapter.a.ravel(), adapter.b.ravel()]).astype("<f2")
    return f"{adapter.rank} {base64.b64encode(numbers.tobytes()).decode()}"


def _matrices(weights: str) -> HeadAdapter | None:
    rank, _, data = weights.partition(" ")
    try:
        numbers = np.frombuffer(base64.b64decode(data, validate=True), "<f2").astype(np.float32)
        a, b = numbers.reshape(2, -1)
        adapter = HeadAdapter(a.reshape(int(rank), -1).copy(), b.reshape(-1, int(rank)).copy())
    except (binascii.Error, ValueError, ZeroDivisionError):
        return None
    return adapter if adapter.a.size and np.isfinite(numbers).all() else None


def _key(source: str) -> Key:
    kind, _, id = source.partition(":")
    return kind, id


def _id(base_sha256: str) -> str:
    return base_sha256[:16] or "model"


def _record(style: Style, now: float) -> Record:
    body: dict[str, Any] = asdict(style)
    del body["created"]
    for name in ("sources", "held"):
        body[name] = list(body[name])
    return Record(KIND, _id(style.base_sha256), body, created=style.created or now)


def _style(record: Record) -> Style:
    assert record.created is not None
    values = {name: tuple(record.body[name]) for name in ("sources", "held")}
    return Style(**{**record.body, **values, "why": words_from(record.body["why"])}, created=record.created)


STYLES = Kind(
    KIND,
    ("learned style", "learned styles"),
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
    on_delete=styles_of,
)
