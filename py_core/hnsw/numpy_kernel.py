"""The kernel in numpy: the reference for web/kernels/hnsw/hnsw.c, step by step.

All kernels give the same graph and the same results, bit for bit: sums are added in one fixed order, and "nearest
first" sorts by distance, then by id, then by row.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from py_core.hnsw.hnsw_graph import LANES, LARGEST, HnswGraph, KernelBlock

Candidate = tuple[float, int, int]
"""Distance, id, row."""


class NumpyHnswKernel:
    """See `HnswKernel` for the contract of each method. Runs everywhere; about ten times as slow as the WASM kernel."""

    def allocate(self, nbytes: int) -> KernelBlock:
        return KernelBlock(0, np.zeros(nbytes, np.uint8))

    def prepare(self, graph: HnswGraph) -> bool:
        query = graph.query
        largest = np.abs(query).max()
        if not largest <= np.float32(LARGEST):  # nor when it is NaN
            return False
        if graph.parameters.metric == "cosine":
            unit_rows(query[None])
        return True

    def search(self, graph: HnswGraph, k: int, ef: int, masked: bool) -> int:
        if graph.header["entry"] < 0:
            return 0
        allowed = graph.mask if masked else graph.alive
        entry = _descend(graph, graph.query, 0)
        return _write_results(graph, _search_level(graph, graph.query, entry, 0, ef, allowed)[:k])

    def scan(self, graph: HnswGraph, k: int, masked: bool) -> int:
        rows = np.flatnonzero((graph.mask if masked else graph.alive)[: graph.rows]).tolist()
        return _write_results(graph, sorted(_candidates(graph, graph.query, rows))[:k])

    def link(self, graph: HnswGraph, row: int) -> None:
        header, vector = graph.header, graph.vector(row)
        rows, i = graph.at(row)
        level = int(rows.level[i])
        if header["entry"] >= 0:
            entry = _descend(graph, vector, level)
            found: list[Candidate] = []
            joined = range(min(level, int(header["top"])), -1, -1)
            for at in joined:
                found = _search_level(graph, vector, entry, at, graph.parameters.ef_construction)
                entry = found[0][2]
                _select_links(graph, found, graph.parameters.m, graph.links(row, at))
            own = float(_distances(graph, vector, vector[None])[0])
            for distance, _, other in found:
                same = distance == own and graph.vector(other).tobytes() == vector.tobytes()
                if same and graph.alive[other]:
                    others, j = graph.at(other)
                    rows.twin[i], others.twin[j] = others.twin[j], row
                    rows.level[i], rows.links[i, 0] = -1, 0
                    return
            for at in joined:
                for other in _linked(graph, row, at):
                    _link_back(graph, other, row, at)
        if level > header["top"]:
            header["entry"], header["top"] = row, level

    def bridge(self, graph: HnswGraph, first: int, last: int) -> None:
        for row in (np.flatnonzero(graph.alive[first:last]) + first).tolist():
            rows, i = graph.at(row)
            for level in range(int(rows.level[i]) + 1):
                if all(graph.alive[other] for other in _linked(graph, row, level)):
                    continue
                visited, passed = {row}, [row]
                living: list[int] = []
                for at in passed:  # grows during the loop
                    if len(living) >= graph.parameters.ef_construction:
                        break
                    for other in _linked(graph, at, level):
                        if other not in visited:
                            visited.add(other)
                            (living if graph.alive[other] else passed).append(other)
                found = sorted(_candidates(graph, graph.vector(row), living))
                _select_links(graph, found, _limit(graph, level), graph.links(row, level))
                for other in _linked(graph, row, level):
                    if row not in _linked(graph, other, level):
                        _link_back(graph, other, row, level)


def unit_rows(rows: np.ndarray) -> None:
    """Normalize each row of (n, size) to length 1, in place, to the same bits as every kernel; zeros stay zeros."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.where(largest > 0, largest, np.float32(1))
    length = np.sqrt(_sums(rows * rows))[:, None]
    rows /= np.where(largest > 0, length, np.float32(1))


def _sums(products: np.ndarray) -> np.ndarray:
    """(n, size) -> (n,): sums in the order of four vectors of four lanes."""
    parts = products.reshape(len(products), products.shape[1] // LANES, LANES)
    lanes = np.zeros((len(products), LANES), np.float32)
    for i in range(parts.shape[1]):
        lanes += parts[:, i]
    a, b, c, d = lanes.reshape(-1, 4, 4).transpose(1, 0, 2)
    four = (a + b) + (c + d)
    return (four[:, 0] + four[:, 2]) + (four[:, 1] + four[:, 3])


def _distances(graph: HnswGraph, query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """(size,), (n, size) -> (n,): 1 - cosine, -dot, or the squared Euclidean distance."""
    if graph.parameters.metric == "l2":
        return _sums((query - vectors) ** 2)
    products = _sums(query * vectors)
    return np.float32(1) - products if graph.parameters.metric == "cosine" else -products


def _candidates(graph: HnswGraph, query: np.ndarray, rows: list[int]) -> list[Candidate]:
    distances = _distances(graph, query, graph.vectors(rows)).tolist()
    return [(distance, graph.id_of(row), row) for distance, row in zip(distances, rows, strict=True)]


def _linked(graph: HnswGraph, row: int, level: int) -> list[int]:
    links = graph.links(row, level)
    return links[1 : 1 + links[0]].tolist()


def _limit(graph: HnswGraph, level: int) -> int:
    return graph.parameters.m if level else graph.parameters.m0


def _search_level(
    graph: HnswGraph, query: np.ndarray, entry: int, level: int, ef: int, allowed: np.ndarray | None = None
) -> list[Candidate]:
    """Algorithm 2, with the links of several candidates in one batch. Returns the ef nearest, sorted.

    With `allowed`, only rows whose byte in it is not 0 are found, including twins.
    """
    found: list[Candidate] = []
    todo: list[Candidate] = []
    visited, batch = {entry}, [entry]
    while True:
        for candidate in _candidates(graph, query, batch):
            if len(found) == ef and candidate > found[-1]:
                continue
            insort(todo, candidate)
            if allowed is None:
                insort(found, candidate)
            else:
                for row in graph.twins(candidate[2]):
                    if allowed[row]:
                        insort(found, (candidate[0], graph.id_of(row), row))
            del found[ef:]
        batch, taken = [], 0
        while taken < graph.parameters.expansion and todo and (len(found) < ef or todo[0] <= found[-1]):
            taken += 1
            for row in _linked(graph, todo.pop(0)[2], level):
                if row not in visited:
                    visited.add(row)
                    batch.append(row)
        if not taken:
            return found


def _descend(graph: HnswGraph, query: np.ndarray, level: int) -> int:
    """Descend from the entry point to the level above `level`; each search starts at the previous one's nearest row."""
    row = int(graph.header["entry"])
    for above in range(int(graph.header["top"]), level, -1):
        row = _search_level(graph, query, row, above, 1)[0][2]
    return row


def _select_links(graph: HnswGraph, found: list[Candidate], limit: int, links: np.ndarray) -> None:
    """Algorithm 4. A candidate is skipped if it is nearer to a chosen link than to the row itself."""
    chosen: list[int] = []
    for distance, _, row in found:
        if len(chosen) == limit:
            break
        if (
            len(found) < limit
            or not chosen
            or (_distances(graph, graph.vector(row), graph.vectors(chosen)) >= distance).all()
        ):
            chosen.append(row)
    links[0] = len(chosen)
    links[1 : 1 + len(chosen)] = chosen


def _link_back(graph: HnswGraph, row: int, other: int, level: int) -> None:
    links = graph.links(row, level)
    if links[0] < _limit(graph, level):
        links[0] += 1
        links[links[0]] = other
        return
    found = sorted(_candidates(graph, graph.vector(row), [*_linked(graph, row, level), other]))
    _select_links(graph, found, _limit(graph, level), links)


def _write_results(graph: HnswGraph, found: list[Candidate]) -> int:
    graph.ids[: len(found)] = [id for _, id, _ in found]
    graph.distances[: len(found)] = [distance for distance, _, _ in found]
    return len(found)
