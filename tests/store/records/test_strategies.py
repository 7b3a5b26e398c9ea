"""Strategies of the deep loop, on every backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.records.kinds import KINDS
from py_core.learning.strategies import Strategies, Strategy
from py_core.store.kinds import Kinds
from tests.store.places import Place

NOW = 1_700_000_000.0


async def test_strategies_come_back_whole_and_are_replaced_together(place: Place) -> None:
    store = await place.open(clock=lambda: NOW, kinds=Kinds(KINDS))
    strategies = Strategies(store)
    made = Strategy(
        "s1", np.array([1, 0], np.float32), ("How many sheep?",), "coder", "failure", 0.75, 4, 3.5, 0.5, (2.0, 1.5, 0.5)
    )
    await strategies.replace_all([made, replace(made, id="s2", created=NOW - 1)])
    older, found = await strategies.all()
    assert (older.id, older.created, found.created) == ("s2", NOW - 1, NOW)
    assert np.array_equal(found.vector, made.vector)
    assert repr(found) == repr(replace(made, created=NOW))
    await strategies.replace_all([replace(made, verdict="success")])
    assert [(one.id, one.verdict) for one in await strategies.all()] == [("s1", "success")]
    await strategies.delete("s1")
    assert await strategies.all() == []
