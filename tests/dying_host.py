"""Hosts of the WASM kernels whose workers die in runs that a test chooses by their numbers."""

from __future__ import annotations

from collections.abc import Awaitable

from py_core.backends.wasm.host import WorkersRestartedError
from py_core.backends.wasm.host_wasmtime import WasmtimeHost


class DyingHost(WasmtimeHost):
    """Its workers die in each run whose number is a multiple of `dies`; 0 for none."""

    dies, runs = 0, 0

    def run(self, program: int, steps: int) -> Awaitable[list[int]]:
        self.runs += 1
        return self._lost() if self.dies and self._is_due() else super().run(program, steps)

    def _is_due(self) -> bool:
        return self.runs % self.dies == 0

    async def _lost(self) -> list[int]:
        raise WorkersRestartedError


class DyingOnceHost(DyingHost):
    """Its workers die in the run of this number, once."""

    def _is_due(self) -> bool:
        return self.runs == self.dies
