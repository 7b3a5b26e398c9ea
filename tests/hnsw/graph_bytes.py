"""The whole state of an index as bytes, for comparing indexes."""

from __future__ import annotations

import numpy as np

from py_core.hnsw.index import HnswIndex


def graph_bytes(index: HnswIndex) -> bytes:
    graph = index.graph
    parts = [graph.column(name) for name in ("id", "level", "slot", "twin", "vector")]
    for links in (graph.column("links"), graph.upper_links()):
        # Behind the current links, memory holds old links.
        parts.append(np.where(np.arange(links.shape[1]) <= links[:, :1], links, 0))
    counts = [index.linked, index.inserted, int(graph.header["entry"]), int(graph.header["top"])]
    parts += [graph.alive[: graph.rows], np.array(counts)]
    return b"".join(part.tobytes() for part in parts)
