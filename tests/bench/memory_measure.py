"""What tests/bench/memory.py measures on one store, natively and in the page: the page gets this file's text."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from py_core.memory.records import Record
from py_core.memory.store import Store
from py_core.memory.vectors import VectorSearch

DIMENSIONS = 384
BATCH = 100
READS, SEARCHES = 500, 30


async def measure(store: Store, count: int) -> dict[str, float]:
    """Fill an empty store with `count` records of 384 dimensions and some 250 bytes, and use it."""
    rng = np.random.default_rng(0)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]

    def record(number: int) -> Record:
        vector = rng.standard_normal(DIMENSIONS, np.float32)
        return Record("pattern", f"p{number}", {"agent": f"agent {number % 13}", "text": "x" * 200}, vector)

    figures: dict[str, float] = {"records": count}
    spent = 0.0
    for numbers in batches:
        records = [record(number) for number in numbers]
        begin = time.perf_counter()
        await store.put_many(records)
        spent += time.perf_counter() - begin
    figures["writes_per_s"] = count / spent
    singles = [record(count + number) for number in range(50)]
    figures["single_write_ms"] = await _median_ms(len(singles), lambda n: store.put(singles[n]))
    ids = [f"p{number}" for number in rng.integers(0, count, READS)]
    figures["read_ms"] = await _median_ms(READS, lambda n: store.get("pattern", ids[n]))
    begin = time.perf_counter()
    seen = 0
    async for _ in store.scan("pattern"):
        seen += 1
    figures["scanned_per_s"] = seen / (time.perf_counter() - begin)
    begin = time.perf_counter()
    found = await store.query("pattern", {"agent": "agent 3"}, newest_first=True, limit=20)
    figures["query_ms"] = (time.perf_counter() - begin) * 1000
    assert len(found) == 20
    search = VectorSearch(store)
    queries = rng.standard_normal((SEARCHES, DIMENSIONS), np.float32)
    begin = time.perf_counter()
    await search.search("pattern", queries[0], 10)
    figures["first_search_ms"] = (time.perf_counter() - begin) * 1000
    figures["search_ms"] = await _median_ms(SEARCHES, lambda n: search.search("pattern", queries[n], 10))
    return figures


async def _median_ms(times: int, work: Callable[[int], Awaitable[Any]]) -> float:
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - begin) * 1000)
    return float(np.median(taken))
