"""The kernel of web/kernels/hnsw/hnsw.c in the page.

web/hnsw_kernel.js makes an instance of it on Pyodide's own memory, so that numpy arrays are used in place. Natively
kernel_wasmtime.py makes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from py_core.routing.graph import Block, Graph

STACK_BYTES = 16384
_ALIGNMENT = 16


class WasmKernel:
    """The calls, for either host. See `Kernel` for the contract of each method; `allocate` is the host's."""

    def __init__(self, exports: Any) -> None:
        """`exports`: the functions `prepare`, `search`, `scan`, `link` and `bridge`, of numbers."""
        self._prepare, self._search, self._scan = exports.prepare, exports.search, exports.scan
        self._link, self._bridge = exports.link, exports.bridge

    def prepare(self, graph: Graph) -> bool:
        return bool(self._prepare(graph.address))

    def search(self, graph: Graph, k: int, ef: int, masked: bool) -> int:
        return int(self._search(graph.address, k, ef, graph.address_of("mask" if masked else "alive")))

    def scan(self, graph: Graph, k: int, masked: bool) -> int:
        return int(self._scan(graph.address, k, graph.address_of("mask" if masked else "alive")))

    def link(self, graph: Graph, row: int) -> None:
        self._link(graph.address, row)

    def bridge(self, graph: Graph, first: int, last: int) -> None:
        self._bridge(graph.address, first, last)


class PyodideKernel(WasmKernel):
    """In the page. Its memory is Pyodide's, and is given back when an index is no longer used."""

    def __init__(self, exports: Any) -> None:
        """`exports`: what web/hnsw_kernel.js gives."""
        super().__init__(exports)
        self._stack = self.allocate(STACK_BYTES)
        getattr(exports, "__stack_pointer").value = self._stack.address + STACK_BYTES

    def allocate(self, nbytes: int) -> Block:
        room = np.zeros(nbytes + _ALIGNMENT, np.uint8)
        start = -room.__array_interface__["data"][0] % _ALIGNMENT
        aligned = room[start : start + nbytes]
        return Block(aligned.__array_interface__["data"][0], aligned)
