"""The kernel of web/kernels/grammar in the page."""

from __future__ import annotations

from typing import Any

from pyodide.ffi import to_js


class BrowserGrammarHost:
    """See `KernelHost`."""

    def __init__(self, kernel: Any) -> None:
        """kernel: of web/engine/grammar_kernel.js."""
        self.exports, self._kernel = kernel.exports, kernel

    def write(self, address: int, data: bytes | memoryview) -> None:
        self._kernel.write(address, to_js(data))

    def read(self, address: int, nbytes: int) -> bytes:
        read: bytes = self._kernel.read(address, nbytes).to_bytes()
        return read
