"""The host in the page: calls web/backends/webgpu/executor.js."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from pyodide.ffi import JsException, to_js

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.browser_source import BrowserSource
from py_core.backends.protocols import Progress
from py_core.backends.webgpu.host import NO_TIMESTAMPS, AdapterInfo, Dispatch, Segment
from py_core.formats.gguf import GGUFError
from py_core.formats.source import WeightSource
from py_core.messages import Message
from py_core.messages_browser import js_words


class BrowserHost:
    """See `Host` for the contract of each method."""

    hears_together = True

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._closed = False
        self.adapter = self._adapter_info()

    def _adapter_info(self) -> AdapterInfo:
        info, limits = self._executor.adapterInfo, self._executor.limits
        return AdapterInfo(
            name=info.name,
            vendor=info.vendor,
            software=info.software,
            subgroup_size=info.subgroupSize,
            max_binding_size=int(limits.maxStorageBufferBindingSize),
            max_buffer_size=int(limits.maxBufferSize),
            max_workgroup_storage=limits.maxComputeWorkgroupStorageSize,
            max_workgroup_size=limits.maxComputeInvocationsPerWorkgroup,
            max_storage_buffers=limits.maxStorageBuffersPerShaderStage,
            integer_dot=info.integerDot,
        )

    async def reopen(self) -> None:
        self._refuse_closed()
        try:
            found = await self._executor.reopen()
        except JsException as error:
            raise DeviceLostError(_LOST) from error
        if not found:
            raise DeviceLostError(_LOST)
        self.adapter = self._adapter_info()

    def create_buffer(self, size: int, label: str) -> int:
        return self._open().createBuffer(size, label)

    def buffer_bytes(self) -> Mapping[str, int]:
        return dict(self._open().bufferBytes().to_py())

    def destroy_buffer(self, buffer: int) -> None:
        self._open().destroyBuffer(buffer)

    def write(self, buffer: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._open().write(buffer, offset, to_js(memoryview(data)))

    def copy(self, source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
        self._open().copy(source, source_offset, target, target_offset, nbytes)

    def pipeline(self, wgsl: str, access: str, label: str) -> int:
        return self._open().pipeline(wgsl, access, label)

    def record(self, dispatches: Sequence[Dispatch]) -> int:
        words = array("I")
        for dispatch in dispatches:
            words.extend((dispatch.pipeline, *dispatch.groups, len(dispatch.bindings)))
            for binding in dispatch.bindings:
                words.extend((binding.buffer, binding.offset, binding.size))
        return self._open().record(to_js(memoryview(words)))

    def forget(self, recorded: int) -> None:
        self._open().forget(recorded)

    def submit(self, recorded: Sequence[int]) -> None:
        self._open().submit(to_js(recorded))

    async def read(self, buffer: int, offset: int, nbytes: int) -> bytes:
        try:
            return (await self._open().read(buffer, offset, nbytes)).to_bytes()
        except JsException as error:
            raise await self._explain(error) from error

    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        try:
            seconds = await self._open().profile(to_js(recorded), to_js(times))
        except JsException as error:
            raise await self._explain(error) from error
        if seconds is None:
            raise BackendError(NO_TIMESTAMPS)
        return seconds.to_py()

    async def upload(self, source: WeightSource, segments: Sequence[Segment], progress: Progress | None) -> None:
        """From the network into buffers, past Python. The stream itself reports progress."""
        if not isinstance(source, BrowserSource):
            raise TypeError("in the page, weights come from a BrowserSource")
        words = array("d")
        for part in sorted(segments, key=lambda segment: segment.file_offset):
            words.extend((part.file_offset, part.nbytes, part.buffer, part.offset, part.then))
        try:
            await self._open().upload(source.stream, to_js(memoryview(words)))
        except JsException as error:
            if await self._executor.isLost():
                raise DeviceLostError(_LOST) from error
            raise GGUFError(js_words(error)) from error

    async def check(self) -> None:
        try:
            refused = await self._open().check()
        except JsException as error:
            raise await self._explain(error) from error
        self._open()
        if refused:
            raise BackendError("gpu.refused", "The graphics card refused the model: {why}", why=refused)

    def close(self) -> None:
        self._closed = True
        self._executor.destroy()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise BackendError("model.closed", "The model was closed. Load it again.")

    def _open(self) -> Any:
        self._refuse_closed()
        if self._executor.lostMessage:
            raise DeviceLostError(_LOST)
        return self._executor

    async def _explain(self, error: JsException) -> BackendError:
        if await self._executor.isLost():
            return DeviceLostError(_LOST)
        return BackendError(
            "gpu.error", "The graphics card reported an error: {why} Load the model again.", why=js_words(error)
        )


_LOST = Message(
    "gpu.lost",
    "The connection to the graphics card was lost (it was reset, went to sleep, or ran out of "
    "memory). Load the model again to continue.",
)
