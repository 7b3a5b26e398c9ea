"""After any operations in any order, a store holds the same as a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.records.kinds import KINDS
from py_core.store.errors import StoreError
from py_core.store.passphrase import remove_passphrase, set_passphrase
from py_core.store.records import Record, index_fields
from py_core.store.rows import Key, Query, Range
from py_core.store.store import Store
from py_core.store.transaction import Transaction
from py_core.store.transfer import export, import_file
from tests.store.browser.page import Tab
from tests.store.places import BACKENDS, Place, make_place

KIND_NAMES = st.sampled_from(["pattern", "trajectory", "policy"])
NAMES = st.sampled_from(["a", "b", "ab", "B", "ä", "日本", "𝄞"]) | st.text(
    st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.sampled_from(["coder", "tester"]) | SCALARS,
        "source": st.sampled_from(["user", "learned"]),
        "rating": st.floats(0, 1) | SCALARS,
        "failed": st.booleans(),
        "deep": st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    },
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.none() | st.lists(FLOATS, min_size=1, max_size=5).map(lambda values: np.array(values, np.float32))
TIMES = st.sampled_from([0.0, 1.0, 2.5]) | st.floats(0, 4e9)
RECORDS = st.builds(Record, KIND_NAMES, NAMES, BODIES, VECTORS, TIMES, TIMES)
WANTED = st.dictionaries(
    st.sampled_from(["agent", "rating", "failed"]),
    st.sampled_from(["coder", 0.5, True]) | st.builds(Range, st.just(0.0), st.floats(0, 1)),
    max_size=2,
)


class StoreMachine(RuleBasedStateMachine):
    """`make_place` is given by the test."""

    make_place: Callable[[], Place]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = type(self).make_place()
        self.store: Store = self.run(self.place.open())
        self.model: dict[Key, Record] = {}
        self.kept: tuple[bytes, dict[Key, Record]] | None = None

    def run(self, work):
        return self.runner.run(work)

    @rule(record=RECORDS)
    def put(self, record: Record) -> None:
        self.run(self.store.put(record))
        self.model[record.key] = record

    @rule(puts=st.lists(RECORDS, max_size=4), deletes=st.lists(st.tuples(KIND_NAMES, NAMES), max_size=2))
    def transaction(self, puts: list[Record], deletes: list[Key]) -> None:
        transaction = Transaction()
        for record in puts:
            transaction.put(record)
            self.model[record.key] = record
        for key in deletes:
            transaction.delete(*key)
            self.model.pop(key, None)
        self.run(self.store.commit(transaction))

    @rule(record=RECORDS, version=st.sampled_from([0, 1, 10**6]))
    def put_where_nothing_is_expected(self, record: Record, version: int) -> None:
        there = self.run(self.store.get(*record.key))
        transaction = Transaction()
        transaction.put(record)
        transaction.expect(*record.key, version)
        if version == (there.version if there else 0):
            self.run(self.store.commit(transaction))
            self.model[record.key] = record
        else:
            with pytest.raises(StoreError):
                self.run(self.store.commit(transaction))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        kind, id = data.draw(st.sampled_from(sorted(self.model)) if self.model else st.tuples(KIND_NAMES, NAMES))
        self.run(self.store.delete(kind, id))
        self.model.pop((kind, id), None)

    @rule(kind=KIND_NAMES | st.none())
    def clear(self, kind: str | None) -> None:
        self.run(self.store.clear(kind))
        self.model = {} if kind is None else {k: r for k, r in self.model.items() if k[0] != kind}

    @rule()
    def open_again(self) -> None:
        if self.place.opened[0].persistent:
            self.run(self.store.close())
            self.store = self.run(self.place.open())

    @rule()
    def change_the_passphrase(self) -> None:
        if self.place.encrypted:
            self.run(remove_passphrase(self.store, "correct horse"))
            self.run(set_passphrase(self.store, "correct horse", iterations=1000))

    @rule()
    def keep_an_export(self) -> None:
        self.kept = self.run(export(self.store, in_the_clear=True)), dict(self.model)

    @rule(mode=st.sampled_from(["merge", "replace"]))
    def import_it(self, mode) -> None:
        if self.kept is None:
            return
        data, kept = self.kept
        self.run(import_file(self.store, data, mode))
        if mode == "replace":
            self.model = dict(kept)
        else:
            newer = {k: r for k, r in kept.items() if k not in self.model or r.updated > self.model[k].updated}
            self.model.update(newer)

    @rule(
        kind=KIND_NAMES,
        where=WANTED,
        newest=st.booleans(),
        since=st.none() | TIMES,
        limit=st.none() | st.integers(0, 3),
    )
    def query(self, kind: str, where: dict, newest: bool, since: float | None, limit: int | None) -> None:
        names = KINDS[kind].indexed
        where = {name: value for name, value in where.items() if name in names}
        asked = Query(kind, {n: v if isinstance(v, str | Range) else float(v) for n, v in where.items()})
        expected = [
            r
            for r in self.model.values()
            if r.kind == kind and asked.matches(index_fields(r.body, names)) and (since is None or r.created >= since)
        ]
        found = self.run(self.store.query(kind, where, since=since, newest_first=newest, limit=limit))
        times = sorted((r.created for r in expected), reverse=newest)[:limit]
        assert [r.created for r in found] == times  # the order of equal times is not promised
        assert len({r.key for r in found}) == len(found)
        assert all(self.model[r.key] == r and r in expected for r in found)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        async def scan() -> dict[Key, Record]:
            return {record.key: record async for record in self.store.scan()}

        assert self.run(scan()) == self.model
        assert self.run(self.store.count()) == len(self.model)

    def teardown(self) -> None:
        for store in self.place.opened:
            self.run(store.close())
        self.runner.close()


GATE = {"volatile": 5, "sqlite": 10, "indexeddb encrypted": 3}
MORE = {name: 15 if name.startswith("indexeddb") else 50 for name in BACKENDS}


@pytest.mark.parametrize(
    ("name", "examples"),
    [*GATE.items(), *(pytest.param(name, examples, marks=pytest.mark.all) for name, examples in MORE.items())],
)
@pytest.mark.no_cover
def test_a_store_is_a_dictionary(name: str, examples: int, tmp_path: Path, get_tab: Callable[[], Tab]) -> None:
    class Machine(StoreMachine):
        @staticmethod
        def make_place() -> Place:
            return make_place(name, tmp_path, get_tab)

    effort = settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=effort)
