"""What an index asks of the kernel that does its work.

All kernels give the same graph and the same results, bit for bit: see numpy_kernel.py, the reference.
"""

from __future__ import annotations

from typing import Protocol

from py_core.hnsw.hnsw_graph import Block, HnswGraph


class HnswKernel(Protocol):
    """Works on graphs in memory that it gave. One kernel serves any number of graphs, one call at a time."""

    def allocate(self, nbytes: int) -> Block: ...

    def prepare(self, graph: HnswGraph) -> bool:
        """Bring the vector in `graph.query` to length 1 if the metric is cosine (a zero vector stays as it is).

        False when it has a component that is not a number, or larger than LARGEST.
        """
        ...

    def search(self, graph: HnswGraph, k: int, ef: int, masked: bool) -> int:
        """The k nearest of the prepared query into `graph.ids` and `graph.distances`, by the graph; their number.

        Only rows that are alive, or, masked, whose byte in `graph.mask` is not 0, are found. arXiv 1603.09320,
        algorithm 5.
        """
        ...

    def scan(self, graph: HnswGraph, k: int, masked: bool) -> int:
        """The same, by looking at each row: exact."""
        ...

    def link(self, graph: HnswGraph, row: int) -> None:
        """Bring a row into the graph (algorithm 1), or into the chain of twins of a row with the same vector."""
        ...

    def bridge(self, graph: HnswGraph, first: int, last: int) -> None:
        """Give each living row of first .. last - 1 that links to dead ones links to what lies behind these instead."""
        ...
