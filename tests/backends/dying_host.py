"""Hosts that lose their device in calls that a test chooses: workers die, a GPU goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from py_core.backend_errors import WorkersRestartedError
from py_core.backends.protocols import Progress
from py_core.backends.wasm.host import Placed, RepackJob
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.host_wgpu import WgpuHost


class DyingHost(WasmtimeHost):
    """Its workers die in each run whose number is a multiple of `dies`; 0 for none.

    As in the page, writes since the last answer are lost with them, and calls fail until new workers have started on
    the same memory.
    """

    dies = runs = restarts = 0

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self._unanswered: list[tuple[int, bytes]] = []
        """The old contents of places that were written since the last answer, the newest last."""
        self._failing: list[asyncio.Future[list[int]]] | None = None
        """Calls since the workers died; None while they live."""

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        if self._failing is None:
            self._unanswered.append((address, self.peek(address, memoryview(data).nbytes)))
            super().write(address, data)

    async def upload(self, source, jobs: Sequence[RepackJob], placed: Placed, progress: Progress | None) -> bool:
        is_new = await super().upload(source, jobs, placed, progress)
        self._unanswered.clear()
        return is_new

    def run(self, program: int, steps: int) -> Awaitable[list[int]]:
        self.runs += 1
        if (failing := self._dies_here()) is not None:
            return failing
        return super().run(program, steps)

    async def read(self, address: int, nbytes: int) -> bytes:
        if self._failing is not None:
            await self._fails()
        self._unanswered.clear()
        return await super().read(address, nbytes)

    def _is_due(self) -> bool:
        return self.runs % self.dies == 0

    def _dies_here(self) -> asyncio.Future[list[int]] | None:
        """The answer of a call in which the workers die, or before which they died; otherwise earlier writes are
        done."""
        if self._failing is None and self.dies and self._is_due():
            for address, before in reversed(self._unanswered):
                super().write(address, before)
            self._failing = []
            asyncio.get_running_loop().call_soon(self._begin_again)
        if self._failing is not None:
            return self._fails()
        self._unanswered.clear()
        return None

    def _fails(self) -> asyncio.Future[list[int]]:
        assert self._failing is not None
        self._failing.append(asyncio.get_running_loop().create_future())
        self._failing[-1].add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._failing[-1]

    def _begin_again(self) -> None:
        failing, self._failing = self._failing or [], None
        self.restarts += 1
        self._unanswered.clear()
        for answer in failing:
            if not answer.done():
                answer.set_exception(WorkersRestartedError())


class DyingOnceHost(DyingHost):
    """Its workers die in the run of this number, once."""

    def _is_due(self) -> bool:
        return self.runs == self.dies


class WorkersDie(DyingOnceHost):
    """Its workers die in the n-th run or read after `lose(n)`, once; 0 for none. `lost`: the number of times."""

    lost = 0

    def lose(self, number: int) -> None:
        self.runs, self.dies = 0, number

    @property
    def calls(self) -> int:
        """Calls since the last `lose`."""
        return self.runs

    async def read(self, address: int, nbytes: int) -> bytes:
        self.runs += 1
        if (failing := self._dies_here()) is not None:
            await failing
        return await super().read(address, nbytes)

    def _begin_again(self) -> None:
        self.lost += 1
        super()._begin_again()


class DeviceGoes(WgpuHost):
    """Its device is lost before the n-th call after `lose(n)`, or in it if that is a read; 0 for none.

    `lost`: the number of times. `calls`: since the last `lose`.
    """

    calls = goes = lost = 0

    def lose(self, number: int) -> None:
        self.calls, self.goes = 0, number

    def create_buffer(self, size: int, label: str) -> int:
        self._goes_here()
        return super().create_buffer(size, label)

    def write(self, buffer: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._goes_here()
        super().write(buffer, offset, data)

    def copy(self, source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
        self._goes_here()
        super().copy(source, source_offset, target, target_offset, nbytes)

    def submit(self, recorded: Sequence[int]) -> None:
        self._goes_here()
        super().submit(recorded)

    async def read(self, buffer: int, offset: int, nbytes: int) -> bytes:
        if self._is_due():
            asyncio.get_running_loop().call_soon(self._go)
        return await super().read(buffer, offset, nbytes)

    def _goes_here(self) -> None:
        if self._is_due():
            self._go()

    def _go(self) -> None:
        self.lost += 1
        self._device.destroy()

    def _is_due(self) -> bool:
        self.calls += 1
        return self.calls == self.goes
