"""The kernels' host natively: wasmtime, with a thread for each worker. Tests run the same code as the page."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import wasmtime
from wasmtime import _ffi as ffi

from py_core.backend_errors import BackendError
from py_core.backends.protocols import Progress
from py_core.backends.wasm.host import MAX_WORKERS, Placed, RepackJob
from py_core.backends.wasm.layout import ABI
from py_core.formats.source import WeightSource

_PAGE = 65536
_STACKS, _STACK_BYTES = 4096, 65536
_MOST_PAGES = 65535
_STAGING = 8 << 20
_CONTROL = 1024
_SPIN, ABORT = _CONTROL + 4 * 3, _CONTROL + 4 * 4
"""Words of web/kernels/kernels.h: how long a worker spins at a barrier, 0 for the most; and that all leave it."""
_SPIN_AGAIN = 8
"""Runs after which long spins are tried again, as in web/backends/wasm/kernel_worker.js."""


def default_workers() -> int:
    """Return one worker for each core, at most eight: more wait for each other more than they help. The page has the
    same rule."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)


@lru_cache(maxsize=4)
def _compiled(kernels: bytes) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Compile once for all hosts of a process: a model and its draft, or the tests' many tiny models."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    config.wasm_threads = True
    config.shared_memory = True
    config.cranelift_opt_level = "speed"
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module(engine, kernels)


class _SharedMemory(wasmtime.SharedMemory):
    """A shared memory as an import: wasmtime 50 itself raises TypeError there, since it points to the pointer."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


class _Worker:
    """The kernels over the shared memory, with a stack of its own. Only one thread at a time may call it."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module, memory: _SharedMemory, index: int) -> None:
        self._store = wasmtime.Store(engine)
        self._exports = wasmtime.Instance(self._store, module, [memory]).exports(self._store)
        stack = self._exports["__stack_pointer"]
        assert isinstance(stack, wasmtime.Global)
        stack.set_value(self._store, wasmtime.Val.i32(_STACKS + (index + 1) * _STACK_BYTES))

    def call(self, name: str, *arguments: int) -> int:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        # wasmtime wants signed numbers.
        result = function(self._store, *(ctypes.c_int32(value).value for value in arguments))
        return result if isinstance(result, int) else 0


class WasmtimeHost:
    """See `KernelHost` for the contract of each method."""

    shared = False
    restarts = 0
    """Its workers are threads: they do not die."""

    def __init__(self, kernels: Path, workers: int = 1) -> None:
        """`kernels`: one of the builds of web/kernels. Raises BackendError if it does not fit this version."""
        self.workers = self.most_workers = min(workers, MAX_WORKERS)
        engine, module = _compiled(kernels.read_bytes())
        limits = wasmtime.Limits(64, _MOST_PAGES)
        self._memory = _SharedMemory(engine, wasmtime.MemoryType(limits, shared=True))
        self._first, *self._others = [_Worker(engine, module, self._memory, at) for at in range(self.workers)]
        self._threads = ThreadPoolExecutor(len(self._others), "sonata-kernels") if self._others else None
        self.build = kernels.stem.removeprefix("kernels-")
        if (abi := self._first.call("abi")) != ABI:
            raise BackendError(
                "wasm.native-version",
                "{kernels} has version {theirs}, not {ours}: run `python build.py site` again.",
                kernels=kernels,
                theirs=abi,
                ours=ABI,
            )
        self._staging = self._runs = 0

    async def reserve(self, nbytes: int) -> None:
        # Python's part ends at nbytes; weights are staged behind it.
        self._staging = -(-nbytes // _PAGE) * _PAGE
        lacking = (self._staging + _STAGING - self._memory.data_len()) // _PAGE
        if lacking <= 0:
            return
        try:
            self._memory.grow(lacking)
        except wasmtime.WasmtimeError as error:
            raise BackendError(
                "wasm.native-memory",
                "The model needs {size} MiB, more than WASM can have here. Choose a smaller model.",
                size=f"{nbytes / 2**20:.0f}",
            ) from error

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        given = bytes(data)
        ctypes.memmove(self._place(address, len(given)), given, len(given))

    async def upload(
        self, source: WeightSource, jobs: Sequence[RepackJob], placed: Placed, progress: Progress | None
    ) -> bool:
        total, done = sum(job.nbytes for job in jobs), 0
        for job in sorted(jobs, key=lambda job: job.file_offset):
            if job.nbytes > _STAGING:
                raise BackendError(
                    "wasm.long-row", "A row of {columns} values is too long for the WASM kernels.", columns=job.columns
                )
            self.write(self._staging, await source.read(job.file_offset, job.nbytes))
            self._first.call("repack", job.format, self._staging, job.target, job.first_row, job.rows, job.columns)
            done += job.nbytes
            if progress:
                progress(done, total)
        return True

    def run(self, program: int, steps: int) -> asyncio.Future[list[int]]:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._runs += 1
        if self._runs % _SPIN_AGAIN == 0:
            self.write(_SPIN, bytes(4))
        with self._together():
            others = [
                self._threads.submit(self._steps, worker, at, program, steps)
                for at, worker in enumerate(self._others, 1)
                if self._threads is not None
            ]
            returned = self._steps(self._first, 0, program, steps)
            for other in others:
                other.result()  # its store is free for the next run
        future.set_result(returned)
        return future

    async def read(self, address: int, nbytes: int) -> bytes:
        return self.peek(address, nbytes)

    def peek(self, address: int, nbytes: int) -> bytes:
        """Return the bytes that the memory holds now."""
        return ctypes.string_at(self._place(address, nbytes), nbytes)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def _steps(self, worker: _Worker, index: int, program: int, steps: int) -> list[int]:
        with self._together():
            return [worker.call("run", program, index, self.workers) for _ in range(steps)]

    @contextmanager
    def _together(self) -> Iterator[None]:
        """A worker that ends early, for example by Ctrl-C, ends the others: they would wait for it for ever."""
        try:
            yield
        except BaseException:
            self.write(ABORT, (1).to_bytes(4, "little"))
            raise

    def _place(self, address: int, nbytes: int) -> int:
        """Return the address of these bytes in this process."""
        if address < 0 or address + nbytes > self._memory.data_len():
            raise IndexError(f"{nbytes} bytes at {address} lie outside of the kernels' memory")
        return ctypes.addressof(self._memory.data_ptr().contents) + address
