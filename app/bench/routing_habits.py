"""Measures the effect of corrected routes: routing_data/route_habits.toml, with and without them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.bench.routing import TEST_SET, read_test_set
from app.native_runtime import native_router_parts
from app.routing.factory import RouterParts
from app.routing.service import RoutingService
from app.runtime import Runtime, RuntimeConfig
from py_core.routing.agents import FALLBACK_ID
from py_core.store.volatile import VolatileRows

HABITS = TEST_SET.with_name("route_habits.toml")
Asked = Sequence[tuple[str, str]]
"""Messages, and their agents."""


def read_habits(path: Path = HABITS) -> list[dict[str, Any]]:
    """Rows of name, agent, told and other. Raises FileNotFoundError."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    habits: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["habit"]
    return habits


async def measure_habits(habits: Sequence[dict[str, Any]], multilingual: bool = False) -> dict[str, Any]:
    """All habits belong to one user. Shares of 1: of the corrected messages (`told`), of their paraphrases (`other`),
    and of the routing test set (`test`, and its `assistant` part): with the shipped router, and with the corrections
    and the weights that they change."""
    test = [(row["text"], row["agent"]) for row in read_test_set()]
    sets: dict[str, Asked] = {
        "told": [(text, habit["agent"]) for habit in habits for text in habit["told"]],
        "other": [(text, habit["agent"]) for habit in habits for text in habit["other"]],
        "test": [pair for pair in test if pair[1] != FALLBACK_ID],
        "assistant": [pair for pair in test if pair[1] == FALLBACK_ID],
    }

    async def rows() -> VolatileRows:
        return VolatileRows()

    async def parts() -> RouterParts:
        return native_router_parts(multilingual)

    runtime = await Runtime.open(RuntimeConfig(rows, router=parts))
    routing = runtime.routing
    assert routing is not None
    try:
        shipped = await _right(routing, sets)
        for text, agent in sets["told"]:
            routed = await routing.route(text)
            await routing.correct(routed.id, text, agent)
        counts = {name: len(asked) for name, asked in sets.items()}
        return {"requests": counts, "shipped": shipped, "corrected": await _right(routing, sets)}
    finally:
        await runtime.close()


async def _right(routing: RoutingService, sets: dict[str, Asked]) -> dict[str, float]:
    await routing.refresh()
    return {
        name: float(np.mean([(await routing.router.route(text)).agent == agent for text, agent in asked]))
        for name, asked in sets.items()
    }
