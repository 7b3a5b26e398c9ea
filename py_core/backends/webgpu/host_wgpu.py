"""The host natively: wgpu-py, over Vulkan, Metal or Direct3D 12."""

from __future__ import annotations

import asyncio
import os
import struct
import tempfile
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.protocols import Progress
from py_core.backends.webgpu.host import NO_TIMESTAMPS, UPLOAD_PIECE, AdapterInfo, Dispatch, Segment
from py_core.formats.source import WeightSource

# wgpu's GL backend complains on stderr if this is not set, as in a container.
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())

import wgpu
from wgpu.backends.wgpu_native import _api, ffi, lib
from wgpu.backends.wgpu_native.extras import set_instance_extras

NO_ADAPTER = (
    "No WebGPU adapter was found. Install a Vulkan driver (on Debian without a GPU: apt-get install "
    "mesa-vulkan-drivers), or run with --backend numpy."
)
_LOST = "The GPU device was lost (it was reset, went to sleep, or ran out of memory). Load the model again."
T = TypeVar("T")

_LIMITS = (
    "max-storage-buffer-binding-size",
    "max-buffer-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-storage-buffers-per-shader-stage",
)
_LOOK_SECONDS = 0.5
_BOUNDS_CHECKS = 1  # WGPUShaderRuntimeChecks_BoundsChecks


@contextmanager
def _telling_loss() -> Iterator[None]:
    """wgpu-py does not say that a device is lost, but every call on it fails with these words."""
    try:
        yield
    except wgpu.GPUError as error:
        if "device is lost" in str(error):
            raise DeviceLostError(_LOST) from error
        raise


def _subgroup_size(info: Mapping[str, Any]) -> int:
    """Return the smallest subgroup. wgpu-native says 4 for every adapter; NVIDIA's are never smaller than 32."""
    return 32 if info["vendor"] == "NVIDIA" else info.get("subgroup_min_size", info.get("stackgroup_min_size", 0))


def _shader_module(device: wgpu.GPUDevice, wgsl: str, label: str) -> wgpu.GPUShaderModule:
    """Like `device.create_shader_module`, but without a counter in every loop, which guards against endless loops.

    Our loops end, and counting makes kernels up to four times slower (docs/decisions/0012). Reads and writes stay
    checked. wgpu-py has no option for this. This is its code for WGSL, with the function of wgpu-native that has the
    option.
    """
    source = _api.new_struct_p("WGPUShaderSourceWGSL *", code=_api.to_c_string_view(wgsl))
    source[0].chain.next = ffi.NULL
    source[0].chain.sType = lib.WGPUSType_ShaderSourceWGSL
    chain = ffi.cast("WGPUChainedStruct *", source)
    described = _api.new_struct_p("WGPUShaderModuleDescriptor *", nextInChain=chain, label=_api.to_c_string_view(label))
    made = _api.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, described, _BOUNDS_CHECKS)
    return _api.GPUShaderModule(label, made, device)


class WgpuHost:
    """See `Host` for the contract of each method. Raises BackendError when there is no adapter."""

    hears_together = False

    def __init__(self) -> None:
        self._closed = False
        self._take_device(_request_adapter())

    def _take_device(self, adapter: wgpu.GPUAdapter) -> None:
        """Begin with an empty device of an adapter."""
        features = [name for name in ("subgroup", "timestamp-query") if name in adapter.features]
        limits = {name: adapter.limits[name] for name in _LIMITS}
        try:
            self._device = adapter.request_device_sync(required_features=features, required_limits=limits)
        except Exception as error:
            raise BackendError(
                "gpu.no-device", "The GPU {name} cannot be opened: {why}", name=adapter.info["device"], why=error
            ) from error
        info = adapter.info
        self.adapter = AdapterInfo(
            name=info["device"] or info["description"],
            vendor=info["vendor"],
            software=info["adapter_type"] == "CPU",
            subgroup_size=_subgroup_size(info) if "subgroup" in features else 0,
            max_binding_size=limits["max-storage-buffer-binding-size"],
            max_buffer_size=limits["max-buffer-size"],
            max_workgroup_storage=limits["max-compute-workgroup-storage-size"],
            max_workgroup_size=limits["max-compute-invocations-per-workgroup"],
            max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
            integer_dot=True,  # naga translates them for every adapter
        )
        self._buffers: dict[int, wgpu.GPUBuffer] = {}
        self._pipelines: dict[int, tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]] = {}
        self._recorded: dict[int, list[tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroup, tuple[int, int, int]]]] = {}
        self._next = 0

    async def reopen(self) -> None:
        # Ends its thread, and frees the memory of a device that was not lost.
        self._open().destroy()
        try:
            self._take_device(_request_adapter())
        except BackendError as error:
            raise DeviceLostError(_LOST) from error

    def create_buffer(self, size: int, label: str) -> int:
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        try:
            with _telling_loss():
                buffer = self._open().create_buffer(size=size, usage=usage, label=label)
        except wgpu.GPUError as error:
            raise BackendError(
                "gpu.no-room",
                "The GPU has no room for {size} MiB ({label}). Close other programs that use it, or choose a "
                "smaller model.",
                size=f"{size / 2**20:.0f}",
                label=label,
            ) from error
        return self._keep(self._buffers, buffer)

    def buffer_bytes(self) -> Mapping[str, int]:
        self._open()
        found = Counter[str]()
        for buffer in self._buffers.values():
            found[buffer.label] += buffer.size
        return found

    def destroy_buffer(self, buffer: int) -> None:
        self._buffers.pop(buffer).destroy()

    @_telling_loss()
    def write(self, buffer: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._open().queue.write_buffer(self._buffers[buffer], offset, data)

    @_telling_loss()
    def copy(self, source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
        encoder = self._open().create_command_encoder()
        encoder.copy_buffer_to_buffer(
            self._buffers[source], source_offset, self._buffers[target], target_offset, nbytes
        )
        self._device.queue.submit([encoder.finish()])

    def pipeline(self, wgsl: str, access: str, label: str) -> int:
        device = self._open()
        # naga accepts subgroup operations as they are and rejects the directives that browsers require.
        for directive in ("enable subgroups;\n", "diagnostic(off, subgroup_uniformity);\n"):
            wgsl = wgsl.replace(directive, "")
        entries = [
            {
                "binding": number,
                "visibility": wgpu.ShaderStage.COMPUTE,
                "buffer": {"type": "storage" if mode == "w" else "read-only-storage"},
            }
            for number, mode in enumerate(access)
        ]
        try:
            with _telling_loss():
                layout = device.create_bind_group_layout(entries=entries)
                pipeline = device.create_compute_pipeline(
                    label=label,
                    layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={"module": _shader_module(device, wgsl, label), "entry_point": "main"},
                )
        except wgpu.GPUError as error:
            raise BackendError(
                "gpu.not-compiled",
                "The GPU driver cannot compile the kernel {label}: {why}",
                label=repr(label),
                why=error,
            ) from error
        return self._keep(self._pipelines, (pipeline, layout))

    @_telling_loss()
    def record(self, dispatches: Sequence[Dispatch]) -> int:
        device, steps = self._open(), []
        for dispatch in dispatches:
            pipeline, layout = self._pipelines[dispatch.pipeline]
            entries = [
                {
                    "binding": number,
                    "resource": {"buffer": self._buffers[part.buffer], "offset": part.offset, "size": part.size},
                }
                for number, part in enumerate(dispatch.bindings)
            ]
            steps.append((pipeline, device.create_bind_group(layout=layout, entries=entries), dispatch.groups))
        return self._keep(self._recorded, steps)

    def forget(self, recorded: int) -> None:
        del self._recorded[recorded]

    @_telling_loss()
    def submit(self, recorded: Sequence[int]) -> None:
        encoder = self._open().create_command_encoder()
        compute = encoder.begin_compute_pass()
        for one in recorded:
            self._encode(compute, one)
        compute.end()
        self._device.queue.submit([encoder.finish()])

    async def profile(self, recorded: Sequence[int], times: Sequence[int]) -> list[float]:
        device = self._open()
        if "timestamp-query" not in device.features:
            raise BackendError(NO_TIMESTAMPS)
        count = 2 * len(recorded)
        with _telling_loss():
            queries = device.create_query_set(type="timestamp", count=count)
            resolved = device.create_buffer(
                size=8 * count, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            )
            encoder = device.create_command_encoder()
            for index, (one, repeats) in enumerate(zip(recorded, times, strict=True)):
                stamps = {"beginning_of_pass_write_index": 2 * index, "end_of_pass_write_index": 2 * index + 1}
                compute = encoder.begin_compute_pass(timestamp_writes={"query_set": queries, **stamps})
                for _ in range(repeats):
                    self._encode(compute, one)
                compute.end()
            encoder.resolve_query_set(queries, 0, count, resolved, 0)
            device.queue.submit([encoder.finish()])
        ticks = struct.unpack(f"<{count}Q", await self._read_from(resolved, 0, 8 * count))
        resolved.destroy()
        queries.destroy()
        # wgpu returns the GPU's own ticks, which are a nanosecond only on some GPUs.
        tick = lib.wgpuQueueGetTimestampPeriod(device.queue._internal) * 1e-9
        return [tick * max(0, end - begin) for begin, end in zip(ticks[::2], ticks[1::2], strict=True)]

    async def read(self, buffer: int, offset: int, nbytes: int) -> bytes:
        self._open()  # a closed host has no buffers
        return await self._read_from(self._buffers[buffer], offset, nbytes)

    def _encode(self, compute: wgpu.GPUComputePassEncoder, recorded: int) -> None:
        # These are the native calls under the methods of `compute`, which take three times as long; a token has 155
        # dispatches. The encoder reports errors when it finishes.
        encoder = compute._internal
        for pipeline, group, counts in self._recorded[recorded]:
            lib.wgpuComputePassEncoderSetPipeline(encoder, pipeline._internal)
            lib.wgpuComputePassEncoderSetBindGroup(encoder, 0, group._internal, 0, ffi.NULL)
            lib.wgpuComputePassEncoderDispatchWorkgroups(encoder, *counts)

    async def _read_from(self, buffer: wgpu.GPUBuffer, offset: int, nbytes: int) -> bytes:
        device = self._open()
        with _telling_loss():
            staging = device.create_buffer(size=nbytes, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
            encoder = device.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, offset, staging, 0, nbytes)
            device.queue.submit([encoder.finish()])
            # "READ_NOSYNC" would leave the copy out: the plain mode flushes the queue first.
            await _while_there(device, staging.map_async(wgpu.MapMode.READ))
            data = bytes(staging.read_mapped())
            staging.unmap()
            staging.destroy()
            return data

    async def upload(self, source: WeightSource, segments: Sequence[Segment], progress: Progress | None) -> None:
        total = sum(segment.nbytes for segment in segments)
        done = 0
        for segment in sorted(segments, key=lambda segment: segment.file_offset):
            for start in range(0, segment.nbytes, UPLOAD_PIECE):
                size = min(UPLOAD_PIECE, segment.nbytes - start)
                data = await source.read(segment.file_offset + start, size)
                # Writes have whole words.
                self.write(
                    segment.buffer, segment.offset + start, data if size % 4 == 0 else bytes(data) + bytes(-size % 4)
                )
                if segment.then:
                    self.submit([segment.then])
                done += size
                if progress:
                    progress(done, total)

    async def check(self) -> None:
        """wgpu-py raises at the call itself."""

    def close(self) -> None:
        self._closed = True
        self._recorded.clear()
        self._pipelines.clear()
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers.clear()
        self._device.destroy()

    def _open(self) -> wgpu.GPUDevice:
        if self._closed:
            raise BackendError("gpu.native-closed", "The model was closed. Load the model again.")
        return self._device

    def _keep(self, table: dict[int, T], value: T) -> int:
        self._next += 1
        table[self._next] = value
        return self._next


async def _while_there(device: wgpu.GPUDevice, mapping: Awaitable[None]) -> None:
    """Wait for a buffer to be mapped. Raises GPUError if the device is lost.

    On a lost device the mapping may never finish. If it does, reading the buffer would end the process.
    """
    waiting = asyncio.ensure_future(mapping)
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=_LOOK_SECONDS)
            # Commands that are never submitted would also tell, but wgpu never frees them, nor the device they hold.
            device.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_DST).destroy()
        waiting.result()
    finally:
        waiting.cancel()


@cache
def _choose_drivers() -> None:
    """Leave GL out: it is slower, and misses limits that Vulkan, Metal and Direct3D 12 have. Runs once a process."""
    set_instance_extras(backends=["Vulkan", "Metal", "DX12"])


def _request_adapter() -> wgpu.GPUAdapter:
    """Return the fastest adapter."""
    _choose_drivers()
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as error:
        raise BackendError(NO_ADAPTER) from error
    if adapter is None:
        raise BackendError(NO_ADAPTER)
    return adapter
