"""The host of the WASM backend: natively wasmtime, in the page the workers of web/backends/wasm/kernel_pool.js.

All calls reach the first kernel worker in the order they were made. So on every worker, a write is seen by the runs
after it and not by those before. Addresses are byte offsets into the kernels' memory; the backend gives out its parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.backends.protocols import Progress
from py_core.formats.source import WeightSource

HEAP_BASE = 2 << 20
"""Below it are the control block (at 1024) and the workers' stacks (web/kernels/control.h)."""

MAX_WORKERS = 16


@dataclass(frozen=True)
class RepackJob:
    """Rows first_row .. first_row + rows of a matrix, `nbytes` at `file_offset`, are repacked to `target`.

    `target` is the place of row 0 of the whole matrix. Kernel: repack(format, source, target, first_row, rows,
    columns), with `format` ggml's number of the type.
    """

    file_offset: int
    nbytes: int
    format: int
    target: int
    first_row: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Placed:
    """Where jobs bring the weights of a model."""

    regions: Sequence[tuple[int, int]]
    """The address and the bytes of each part, a multiple of 64."""
    changes: str
    """Tells how the weights are changed behind the upload."""


class KernelHost(Protocol):
    """Runs web/kernels on one or several threads over one memory."""

    workers: int
    most_workers: int
    """The most workers there can be later: each has memory of its own."""
    build: str
    """The build of the kernels that runs: pairs, dot or simd, which is the one without relaxed SIMD."""
    shared: bool
    """True if the memory outlives a worker that dies."""

    @property
    def restarts(self) -> int:
        """How many times the workers were restarted. A caller that awaited none of the failed calls learns of it here:
        everything written since the last answer is lost then."""
        ...

    async def reserve(self, nbytes: int) -> None:
        """Make the memory at least `nbytes` bytes large. Raises BackendError if the machine does not give it."""
        ...

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None: ...

    async def upload(
        self, source: WeightSource, jobs: Sequence[RepackJob], placed: Placed, progress: Progress | None
    ) -> bool:
        """Bring weights from a file, in its order, through the repack kernel into the memory, whose other contents are
        not read. Returns False if they are there already, and changed as `placed` says: an earlier load kept them."""
        ...

    def run(self, program: int, steps: int) -> Awaitable[list[int]]:
        """Run a program `steps` times. Returns each run's result. Queued at once, in order; raises
        WorkersRestartedError."""
        ...

    async def read(self, address: int, nbytes: int) -> bytes: ...

    def close(self) -> None: ...
