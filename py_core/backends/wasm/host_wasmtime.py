"""The kernels' host natively: wasmtime, one thread. What is tested here is what runs in the page."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import wasmtime

from py_core.backends.base import BackendError, Progress
from py_core.backends.wasm.host import RepackJob
from py_core.backends.wasm.layout import ABI
from py_core.backends.wasm.module import unshared
from py_core.formats.source import WeightSource

_PAGE = 65536
_STACK_TOP = 4096 + 65536
_MOST_PAGES = 65535
_STAGING = 8 << 20


@lru_cache(maxsize=4)
def _compiled(kernels: bytes) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Compiled once for all hosts of a process: a model and its draft, or the tests' many tiny models."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    config.wasm_threads = True
    config.cranelift_opt_level = "speed"
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module(engine, unshared(kernels))


class WasmtimeHost:
    """See `KernelHost` for the contract of each method."""

    workers = 1
    most_workers = 1
    shared = False

    def __init__(self, kernels: Path) -> None:
        """`kernels`: one of the builds of web/kernels. Raises BackendError where it does not fit this version."""
        engine, module = _compiled(kernels.read_bytes())
        self._store = wasmtime.Store(engine)
        limits = wasmtime.Limits(64, _MOST_PAGES)
        self._memory = wasmtime.Memory(self._store, wasmtime.MemoryType(limits))
        exports = wasmtime.Instance(self._store, module, [self._memory]).exports(self._store)
        self.relaxed = "simd" not in kernels.name
        self._exports = exports
        stack = exports["__stack_pointer"]
        assert isinstance(stack, wasmtime.Global)
        stack.set_value(self._store, wasmtime.Val.i32(_STACK_TOP))
        if (abi := self._call("abi")) != ABI:
            raise BackendError(f"{kernels} is of version {abi}, not {ABI}: run `python build.py site` again.")
        self._staging = 0

    async def reserve(self, nbytes: int) -> None:
        # Python's part ends at nbytes; weights are staged behind it.
        self._staging = -(-nbytes // _PAGE) * _PAGE
        lacking = (self._staging + _STAGING) // _PAGE - self._memory.size(self._store)
        if lacking <= 0:
            return
        try:
            self._memory.grow(self._store, lacking)
        except wasmtime.WasmtimeError as error:
            raise BackendError(
                f"The model needs {nbytes / 2**20:.0f} MiB, more than WASM can have here. Take a smaller model."
            ) from error

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self._memory.write(self._store, bytes(data), address)

    async def upload(self, source: WeightSource, jobs: Sequence[RepackJob], progress: Progress | None) -> None:
        total, done = sum(job.nbytes for job in jobs), 0
        for job in sorted(jobs, key=lambda job: job.file_offset):
            if job.nbytes > _STAGING:
                raise BackendError(f"A row of {job.columns} values is too long for the WASM kernels.")
            self.write(self._staging, await source.read(job.file_offset, job.nbytes))
            self._call("repack", job.format, self._staging, job.target, job.first_row, job.rows, job.columns)
            done += job.nbytes
            if progress:
                progress(done, total)

    def run(self, program: int, steps: int) -> asyncio.Future[list[int]]:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        future.set_result([self._call("run", program, 0, 1) for _ in range(steps)])
        return future

    async def read(self, address: int, nbytes: int) -> bytes:
        return bytes(self._memory.read(self._store, address, address + nbytes))

    def close(self) -> None:
        self._exports = {}  # type: ignore[assignment]

    def _call(self, name: str, *arguments: int) -> int:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        # wasmtime wants signed numbers.
        result = function(self._store, *(ctypes.c_int32(value).value for value in arguments))
        return result if isinstance(result, int) else 0
