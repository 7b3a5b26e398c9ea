"""The host of the WebGPU backend: natively wgpu-py, in the page `web/backends/webgpu/executor.js`.

Handles are plain integers, so that a host may live on the other side of a language border. A recorded list of
dispatches is replayed by its id: after the first pass, a token costs one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from py_core.backends.protocols import Progress
from py_core.formats.source import WeightSource
from py_core.messages import Message

UPLOAD_PIECE = 4 << 20
"""The most bytes of a file brought at a time. web/backends/webgpu/executor.js has the same number."""


@dataclass(frozen=True)
class AdapterInfo:
    """The properties that the kernels' shapes depend on. Sizes in bytes."""

    name: str
    vendor: str
    software: bool
    subgroup_size: int
    """The smallest subgroup that the adapter makes; 0 if subgroups are not available."""
    max_binding_size: int
    max_buffer_size: int
    max_workgroup_storage: int
    max_workgroup_size: int
    max_storage_buffers: int
    """The most storage buffers that one kernel can bind."""
    integer_dot: bool
    """True if its WGSL has dot products of packed bytes."""


@dataclass(frozen=True)
class Binding:
    """A range of a buffer. offset must be a multiple of 256 (the largest alignment WebGPU may ask for)."""

    buffer: int
    offset: int
    size: int


def covering(bindings: Sequence[Binding]) -> Binding | None:
    """Return the range that holds all of these, or None if they are in several buffers."""
    if len({binding.buffer for binding in bindings}) > 1:
        return None
    start = min(binding.offset for binding in bindings)
    return Binding(bindings[0].buffer, start, max(binding.offset + binding.size for binding in bindings) - start)


@dataclass(frozen=True)
class Dispatch:
    pipeline: int
    bindings: tuple[Binding, ...]
    groups: tuple[int, int, int]


@dataclass(frozen=True)
class Segment:
    """A range of a model file: nbytes at `file_offset` go to `offset` of a buffer, a multiple of 4.

    If nbytes is not a multiple of 4, up to 3 bytes after them are overwritten: the buffer has room there. `then` is a
    recorded list to submit once they are written, 0 for none; a segment that has one is at most UPLOAD_PIECE bytes
    long.
    """

    file_offset: int
    nbytes: int
    buffer: int
    offset: int
    then: int = 0


NO_TIMESTAMPS = Message(
    "gpu.no-timestamps",
    "This GPU does not offer timestamp-query, so the time of a kernel cannot be measured. Try "
    "another browser or driver.",
)


WEIGHTS, PAGES, LORA_SET, HEAD_ADAPTERS = "weights", "keys and values", "adapter", "adapters of heads"
"""Labels of buffers that memory use counts separately."""


class Host(Protocol):
    """A GPU device. Methods raise DeviceLostError once the device is gone; BackendError if it refuses something, and
    after `close`."""

    adapter: AdapterInfo
    hears_together: bool
    """True if ends of submissions that were made in one task of the event loop are all heard at the end of the last."""

    async def reopen(self) -> None:
        """Open a new device instead of the old one: every handle is gone, and `adapter` may be another.

        Raises DeviceLostError if there is no adapter now.
        """
        ...

    def create_buffer(self, size: int, label: str) -> int:
        """Make a zeroed storage buffer of `size` bytes (a multiple of 4)."""
        ...

    def destroy_buffer(self, buffer: int) -> None: ...

    def buffer_bytes(self) -> Mapping[str, int]:
        """Return the bytes of the present storage buffers, by label."""
        ...

    def write(self, buffer: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Queue a write; it happens before anything submitted later."""
        ...

    def copy(self, source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
        """Queue a copy from one buffer to another one. Offsets and nbytes are multiples of 4."""
        ...

    def pipeline(self, wgsl: str, access: str, label: str) -> int:
        """Compile a compute shader with the entry point `main`. access: 'r' or 'w' for each binding in order.

        It may be recorded at once, but must be submitted only after a `check`, since a browser compiles several at a
        time. `upload` waits for the pipelines that it runs.
        """
        ...

    def record(self, dispatches: Sequence[Dispatch]) -> int:
        """Keep a list of dispatches for `submit`. Its id is never 0."""
        ...

    def forget(self, recorded: int) -> None:
        """Drop a recorded list."""
        ...

    def submit(self, recorded: Sequence[int]) -> None:
        """Run recorded lists in order, as one submission."""
        ...

    async def read(self, buffer: int, offset: int, nbytes: int) -> bytes:
        """Return bytes of a buffer after all earlier submissions. Several reads may be in flight at once."""
        ...

    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        """Return the seconds of each recorded list, run times[i] times in a compute pass of its own; at most 2048
        lists.

        Uses the GPU's own clock, which a browser may round to 100 us. Raises BackendError if the GPU has none.
        """
        ...

    async def upload(self, source: WeightSource, segments: Sequence[Segment], progress: Progress | None) -> None:
        """Bring ranges of a file, in its order, into buffers, and run the list that follows each range."""
        ...

    async def check(self) -> None:
        """Wait until everything created so far exists. Raises BackendError if the device refused something."""
        ...

    def close(self) -> None: ...
