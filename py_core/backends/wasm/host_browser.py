"""The host in the page: calls web/backends/wasm/kernel_pool.js through Pyodide."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

from pyodide.ffi import JsException, to_js

from py_core.backend_errors import BackendError, WorkersRestartedError
from py_core.backends.browser_source import BrowserSource
from py_core.backends.protocols import Progress
from py_core.backends.wasm.host import Placed, RepackJob
from py_core.backends.wasm.layout import ABI
from py_core.formats.gguf import GGUFError
from py_core.formats.source import WeightSource
from py_core.messages_browser import js_words

_STAGING_ALIGNMENT = 64
_POOL_ERRORS = ("WorkersRestarted", "WorkersLost", "WorkersFailed")


class BrowserKernelHost:
    """See `KernelHost` for the contract of each method.

    After WorkersRestartedError the memory holds what it held, except for writes since the last answer: they are lost.
    """

    def __init__(self, pool: Any) -> None:
        """Raises BackendError if the site's kernels are of another version than this code."""
        if pool.abi != ABI:
            raise BackendError(
                "wasm.other-version",
                "The kernels of this site have version {theirs}, not {ours}. Reload the page.",
                theirs=pool.abi,
                ours=ABI,
            )
        self._pool = pool
        self._reserved = 0
        self.workers = int(pool.workers)
        self.most_workers = int(pool.mostWorkers)
        self.build = str(pool.build)
        self.shared = bool(pool.shared)

    @property
    def restarts(self) -> int:
        return int(self._pool.restarted)

    async def reserve(self, nbytes: int) -> None:
        try:
            await self._pool.reserve(nbytes)
        except JsException as error:
            raise _explain(error) from error
        self._reserved = max(self._reserved, nbytes)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self._pool.write(address, to_js(memoryview(data).cast("B")))

    async def upload(
        self, source: WeightSource, jobs: Sequence[RepackJob], placed: Placed, progress: Progress | None
    ) -> bool:
        """Upload from the network into the kernels' memory, past Python. The stream itself reports progress.

        Two pieces are staged at a time, behind the reserved memory: memory reserved later lies over them.
        """
        if not isinstance(source, BrowserSource):
            raise TypeError("in the page, weights come from a BrowserSource")
        if not jobs:
            return True
        words = array("d")
        for job in sorted(jobs, key=lambda job: job.file_offset):
            words.extend((job.file_offset, job.nbytes, job.format, job.target, job.first_row, job.rows, job.columns))
        regions = array("d", [number for region in placed.regions for number in region])
        if await self._pool.holds(to_js(memoryview(words)), to_js(memoryview(regions)), placed.changes):
            return False
        staging = _aligned(self._reserved)
        room = 2 * _aligned(max(job.nbytes for job in jobs))
        try:
            await self._pool.reserve(staging + room)
        except JsException as error:
            raise _explain(error) from error
        try:
            await self._pool.upload(source.stream, to_js(memoryview(words)), staging)
        except JsException as error:
            if error.name in _POOL_ERRORS:
                raise BackendError("model.load-again", "{why} Load the model again.", why=js_words(error)) from error
            raise GGUFError(js_words(error)) from error
        return True

    def run(self, program: int, steps: int) -> asyncio.Future[list[int]]:
        # Not a task: Pyodide reports a task that fails before it is awaited.
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        def succeed(returned: Any) -> None:
            if not answer.done():
                answer.set_result(returned.to_py().tolist())

        def fail(error: JsException) -> None:
            if not answer.done():
                answer.set_exception(_explain(error))

        self._pool.run(program, steps).then(succeed, fail)
        return answer

    async def read(self, address: int, nbytes: int) -> bytes:
        try:
            return (await self._pool.read(address, nbytes)).to_bytes()
        except JsException as error:
            raise _explain(error) from error

    def close(self) -> None:
        self._pool.destroy()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _STAGING_ALIGNMENT) * _STAGING_ALIGNMENT


def _explain(error: JsException) -> Exception:
    if error.name == "WorkersRestarted":
        return WorkersRestartedError(error.message)
    return BackendError(js_words(error))
