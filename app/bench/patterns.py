"""Measures how the router searches and opens many learned patterns: with and without a graph, rebuilt or read."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from app.records.kinds import KINDS
from app.records.memory import Memory
from app.routing.factory import RouterParts, build_router
from app.routing.pattern_store import load_patterns
from py_core.hnsw.vector_index import VectorIndex
from py_core.routing.patterns import Pattern
from py_core.routing.router import Router
from py_core.store.sqlite import SQLiteRows
from py_core.store.store import Store

QUERIES = 300
BATCH = 1000
NOISE = 0.3
"""Length of the noise in a pattern, beside a shipped example of length 1 and up to half of another example."""
ALWAYS = 1 << 40


async def measure_patterns(parts: RouterParts, count: int) -> dict[str, Any]:
    """Seconds of an opening and milliseconds of a search, in both ways; over a SQLite file that is deleted after it.

    `ready`: until messages are routed, comparing each pattern. `rebuilt`: until the graph is built as well. `read`:
    until messages are routed with the stored graph.
    """
    rng = np.random.default_rng(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        memory = await _open(path, parts)
        router = await build_router(parts.embedder, parts.data, parts.kernel)
        await load_patterns(router, memory)  # names the embedder: the vectors below count as its own
        shipped = list(router.examples.of.values())
        for start in range(0, count, BATCH):
            await memory.patterns.add_many(
                [_near(rng, shipped, number) for number in range(start, min(start + BATCH, count))]
            )
        queries = [_near(rng, shipped, count).vector for _ in range(QUERIES)]
        await memory.close()

        begin = time.perf_counter()
        memory, router, stored = await _opened(path, parts)
        ready = time.perf_counter() - begin
        index = router.learned.index
        with memory.background.paused():
            while index.behind:
                index.link(60.0)
        rebuilt = time.perf_counter() - begin
        begin = time.perf_counter()
        await stored.save()
        saved = time.perf_counter() - begin
        file = await memory.store.get_blob("router")
        await memory.close()

        begin = time.perf_counter()
        memory, router, _ = await _opened(path, parts)
        read = time.perf_counter() - begin
        index = router.learned.index
        exact = VectorIndex.of(router.learned.voting(), router.embedder.dimensions, parts.kernel, scanned=ALWAYS)
        k = router.parameters.neighbours
        found = {name: _search(one, queries, k) for name, one in (("scan", exact), ("hnsw", index))}
        times = []
        for vector in queries:
            begin = time.perf_counter()
            router.decide("a request of some words", vector)
            times.append(time.perf_counter() - begin)
        await memory.close()
    true, near = found["scan"][1], found["hnsw"][1]
    recall = np.mean([len(a & b) / max(len(a), 1) for a, b in zip(true, near, strict=True)])
    return {
        "patterns": count,
        "by_graph": file is not None,
        "open_seconds": {"ready": ready, "rebuilt": rebuilt, "read": read},
        "save_seconds": saved,
        "file_bytes": len(file or b""),
        "search_milliseconds": {name: times for name, (times, _) in found.items()},
        "routing_proper_milliseconds": _percentiles(times),
        "recall": float(recall),
        "k": k,
    }


async def _open(path: Path, parts: RouterParts) -> Memory:
    return await Memory.open(await Store.open(await SQLiteRows.open(path), kinds=KINDS), lambda: parts.kernel)


async def _opened(path: Path, parts: RouterParts) -> tuple[Memory, Router, Any]:
    memory = await _open(path, parts)
    router = await build_router(parts.embedder, parts.data, parts.kernel)
    return memory, router, await load_patterns(router, memory)


def _near(rng: np.random.Generator, shipped: list[Pattern], number: int) -> Pattern:
    example, other = (shipped[place] for place in rng.integers(len(shipped), size=2).tolist())
    noise = rng.standard_normal(len(example.vector), np.float32)
    vector = example.vector + np.float32(rng.uniform(0, 0.5)) * other.vector
    vector += np.float32(NOISE) * noise / np.linalg.norm(noise)
    vector /= np.linalg.norm(vector)
    return Pattern(f"pattern {number}", f"a request of number {number}", vector, example.agent)


def _search(index: VectorIndex, queries: list[np.ndarray], k: int) -> tuple[dict[str, float], list[set[str]]]:
    found = [{name for name, _ in index.search(query, k)} for query in queries]  # and everything is warm
    times = []
    for query in queries:
        begin = time.perf_counter()
        index.search(query, k)
        times.append(time.perf_counter() - begin)
    return _percentiles(times), found


def _percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{part}": 1000 * float(np.percentile(seconds, part)) for part in (50, 95)}
