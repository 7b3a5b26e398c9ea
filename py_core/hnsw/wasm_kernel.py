"""The kernel of web/kernels/hnsw/hnsw.c in the page.

web/routing/hnsw_kernel.js instantiates it in Pyodide's own memory, so that numpy arrays are used in place.
Natively, wasmtime_kernel.py does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from py_core.hnsw.hnsw_graph import HnswGraph, KernelBlock

STACK_BYTES = 16384
_ALIGNMENT = 16


class WasmHnswKernel:
    """The calls for either host. See `HnswKernel` for the contract of each method; `allocate` is the host's."""

    def __init__(self, exports: Any) -> None:
        """`exports`: the functions `prepare`, `search`, `scan`, `link` and `bridge`, of numbers."""
        self._prepare, self._search, self._scan = exports.prepare, exports.search, exports.scan
        self._link, self._bridge = exports.link, exports.bridge

    def prepare(self, graph: HnswGraph) -> bool:
        return bool(self._prepare(graph.address))

    def search(self, graph: HnswGraph, k: int, ef: int, masked: bool) -> int:
        return int(self._search(graph.address, k, ef, graph.address_of("mask" if masked else "alive")))

    def scan(self, graph: HnswGraph, k: int, masked: bool) -> int:
        return int(self._scan(graph.address, k, graph.address_of("mask" if masked else "alive")))

    def link(self, graph: HnswGraph, row: int) -> None:
        self._link(graph.address, row)

    def bridge(self, graph: HnswGraph, first: int, last: int) -> None:
        self._bridge(graph.address, first, last)


class PyodideHnswKernel(WasmHnswKernel):
    """The kernel in the page. Its memory is Pyodide's, and is freed when an index is no longer used."""

    def __init__(self, exports: Any) -> None:
        """`exports`: from web/routing/hnsw_kernel.js."""
        super().__init__(exports)
        self._stack = self.allocate(STACK_BYTES)
        getattr(exports, "__stack_pointer").value = self._stack.address + STACK_BYTES

    def allocate(self, nbytes: int) -> KernelBlock:
        room = np.zeros(nbytes + _ALIGNMENT, np.uint8)
        start = -room.__array_interface__["data"][0] % _ALIGNMENT
        aligned = room[start : start + nbytes]
        return KernelBlock(aligned.__array_interface__["data"][0], aligned)
