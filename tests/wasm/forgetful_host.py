"""A host of the WASM kernels whose worker dies."""

from __future__ import annotations

import asyncio

from py_core.backends.wasm.host import WorkersRestartedError
from py_core.backends.wasm.host_wasmtime import WasmtimeHost


class ForgetfulHost(WasmtimeHost):
    """Its worker dies when told to: the writes since the last answer are lost, and the next run or read fails."""

    dead = False
    deaths = 0

    def die(self) -> None:
        self.dead = True
        self.deaths += 1

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        if not self.dead:
            super().write(address, data)

    def run(self, program: int, steps: int) -> asyncio.Future[list[int]]:
        if not self.dead:
            return super().run(program, steps)
        # Later: all that is queued until then is lost, as in the page, where Python hears of nothing while it runs.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[int]] = loop.create_future()
        loop.call_soon(lambda: future.done() or future.set_exception(self._restarted()))
        return future

    async def read(self, address: int, nbytes: int) -> bytes:
        if self.dead:
            raise self._restarted()
        return await super().read(address, nbytes)

    def _restarted(self) -> WorkersRestartedError:
        self.dead = False
        return WorkersRestartedError()
