"""The interface of the kernels that do an index's work.

All kernels give the same graph and the same results, bit for bit: see numpy_kernel.py, the reference.
"""

from __future__ import annotations

from typing import Protocol

from py_core.hnsw.hnsw_graph import HnswGraph, KernelBlock


class HnswKernel(Protocol):
    """Works on graphs in memory that it allocated. One kernel serves any number of graphs, one call at a time."""

    def allocate(self, nbytes: int) -> KernelBlock: ...

    def prepare(self, graph: HnswGraph) -> bool:
        """Normalize the vector in `graph.query` to length 1 if the metric is cosine (a zero vector stays as it is).

        Returns False if a component is NaN, or larger than LARGEST.
        """
        ...

    def search(self, graph: HnswGraph, k: int, ef: int, masked: bool) -> int:
        """Find the k nearest rows of the prepared query through the graph. Writes `graph.ids` and `graph.distances`,
        and returns their number.

        Only living rows are found, or if masked, those whose byte in `graph.mask` is not 0. arXiv 1603.09320, algorithm
        5.
        """
        ...

    def scan(self, graph: HnswGraph, k: int, masked: bool) -> int:
        """Like `search`, by comparing each row: exact."""
        ...

    def link(self, graph: HnswGraph, row: int) -> None:
        """Insert a row into the graph (algorithm 1), or into the chain of twins of a row with the same vector."""
        ...

    def bridge(self, graph: HnswGraph, first: int, last: int) -> None:
        """Replace the links of living rows first .. last - 1 to dead rows by links to what lies behind these."""
        ...
