"""Removes the dead rows from a graph, in place."""

from __future__ import annotations

import numpy as np

from py_core.hnsw.hnsw_graph import HnswGraph
from py_core.hnsw.hnsw_kernel import HnswKernel


def compact(graph: HnswGraph, linked: int, kernel: HnswKernel) -> int:
    """Give living rows links past the dead ones, and move them together, in order.

    `linked`: how many of the first rows are in the graph. Returns how many of them are in it now.
    """
    kernel.bridge(graph, 0, graph.rows)
    kept = np.flatnonzero(graph.alive[: graph.rows])
    moved = np.full(graph.rows, -1, np.int32)
    moved[kept] = np.arange(len(kept), dtype=np.int32)
    twin = _living_twins(graph, kept)
    uppers = graph.upper_links()[_slots(graph, kept)]
    linked = int(np.searchsorted(kept, linked))

    graph.keep_rows(kept)
    graph.set_column("links", _renumbered(graph.column("links"), moved))
    graph.set_column("twin", np.where(twin < 0, -1, moved[twin]))
    level = graph.column("level")
    above = np.maximum(level, 0)
    graph.set_column("slot", np.cumsum(above) - above)
    graph.set_upper_links(_renumbered(uppers, moved))
    graph.release_unused()
    # The first row of the highest level is as good an entry point as any.
    entry = int(np.argmax(level[:linked])) if linked else -1
    graph.header["entry"], graph.header["top"] = entry, level[entry] if linked else -1
    return linked


def _living_twins(graph: HnswGraph, kept: np.ndarray) -> np.ndarray:
    """For each row of `kept`, the next living row of its chain, or -1."""
    twin = graph.column("twin")
    alive = graph.alive
    next_living = twin[kept]
    for i in np.flatnonzero(next_living >= 0).tolist():
        row = int(next_living[i])
        while row >= 0 and not alive[row]:
            row = int(twin[row])
        next_living[i] = row
    return next_living


def _slots(graph: HnswGraph, kept: np.ndarray) -> np.ndarray:
    """The slots of the rows `kept`, in order."""
    above = np.maximum(graph.column("level")[kept], 0)
    before = np.cumsum(above) - above
    return np.repeat(graph.column("slot")[kept] - before, above) + np.arange(above.sum())


def _renumbered(links: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Links (n, 1 + most) to the rows' new numbers; zeros if there is no link."""
    out = np.zeros_like(links)
    out[:, 0] = links[:, 0]
    used = np.arange(1, links.shape[1]) <= links[:, :1]
    out[:, 1:][used] = moved[links[:, 1:][used]]
    return out
