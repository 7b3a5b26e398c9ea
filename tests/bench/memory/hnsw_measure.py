"""The measurements of hnsw.py, natively and, as text, in the page: data, an index's times and answers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.hnsw.index import HnswIndex, HnswSettings

INNER = 32


def dataset(kind: str, count: int, dimension: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 (count, dimension) and (queries, dimension), the same on every machine but for the last bit.

    "uniform": independent normal components, which is the hardest case. "clustered": some 100 vectors around each
    centre, in 32 dimensions that are turned into all: nearer to what an embedder gives.
    """
    rng = np.random.default_rng([count, dimension])
    if kind == "uniform":
        made = rng.standard_normal((count + queries, dimension), np.float32)
    else:
        centres = rng.standard_normal((max(8, count // 100), INNER), np.float32)
        made = centres[rng.integers(0, len(centres), count + queries)]
        made += np.float32(0.7) * rng.standard_normal(made.shape, np.float32)
        made = made @ rng.standard_normal((INNER, dimension), np.float32)
    return made[:count], made[count:]


def measure(
    kernel: HnswKernel, settings: dict[str, Any], vectors: np.ndarray, queries: np.ndarray, k: int
) -> dict[str, Any]:
    """Return milliseconds of inserts (into the graph only), searches and full scans; bytes; the ids that were found."""
    index = HnswIndex(HnswSettings(vectors.shape[1], **settings), kernel)
    inserts = []
    for id, vector in enumerate(vectors):
        start = time.perf_counter()
        index.insert(id, vector)
        inserts.append(time.perf_counter() - start)
    found = [[id for id, _ in index.search(query, k)] for query in queries]  # and everything is warm
    searches, scans = [], []
    for query in queries:
        start = time.perf_counter()
        index.search(query, k)
        searches.append(time.perf_counter() - start)
    scanned = HnswSettings(vectors.shape[1], **{**settings, "brute_force_below": len(vectors)})
    by_graph, index.settings = index.settings, scanned
    for query in queries[:50]:
        start = time.perf_counter()
        index.search(query, k)
        scans.append(time.perf_counter() - start)
    index.settings = by_graph
    linking = inserts[len(inserts) // 2 :]
    return {
        "insert_ms": _milliseconds(linking),
        "search_ms": _milliseconds(searches),
        "scan_ms": _milliseconds(scans),
        "mb": index.nbytes / 1e6,
        "found": found,
    }


def _milliseconds(seconds: list[float]) -> dict[str, float]:
    p50, p95, p99 = np.percentile(np.array(seconds) * 1e3, [50, 95, 99]).tolist()
    return {"p50": p50, "p95": p95, "p99": p99}
