"""The GPU of this machine through wgpu-py (lavapipe if there is none), and a way to run one kernel on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from py_core.backends.webgpu.host import Binding, Dispatch
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.shaders import Constant, binding_access, compose

Data = np.ndarray | bytes


class KeepingHost(WgpuHost):
    """Compiles a kernel once for all tests."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[str, str], int] = {}

    def pipeline(self, wgsl: str, access: str, label: str) -> int:
        if (wgsl, access) not in self._made:
            self._made[wgsl, access] = super().pipeline(wgsl, access, label)
        return self._made[wgsl, access]


class KernelRunner:
    """Runs one kernel over arrays and returns the contents of its writable bindings afterwards, as bytes."""

    def __init__(self, host: WgpuHost) -> None:
        self.host = host

    def __call__(
        self,
        name: str,
        data: Sequence[Data],
        groups: tuple[int, int, int],
        snippets: Mapping[str, str] | None = None,
        **constants: Constant,
    ) -> list[bytes]:
        wgsl = compose(name, constants, snippets or {})
        access = binding_access(wgsl)
        assert len(access) == len(data)
        pipeline = self.host.pipeline(wgsl, access, name)
        bindings = []
        for item in data:
            raw = item if isinstance(item, bytes) else np.ascontiguousarray(item).tobytes()
            raw += bytes(-len(raw) % 16)
            buffer = self.host.create_buffer(len(raw), name)
            self.host.write(buffer, 0, raw)
            bindings.append(Binding(buffer, 0, len(raw)))
        recorded = self.host.record([Dispatch(pipeline, tuple(bindings), groups)])
        self.host.submit([recorded])
        written = [binding for binding, mode in zip(bindings, access, strict=True) if mode == "w"]
        out = [asyncio.run(self.host.read(one.buffer, 0, one.size)) for one in written]
        self.host.forget(recorded)
        for binding in bindings:
            self.host.destroy_buffer(binding.buffer)
        return out


@pytest.fixture(scope="session")
def host() -> Iterator[WgpuHost]:
    host = KeepingHost()
    yield host
    host.close()


@pytest.fixture(scope="session")
def run_kernel(host: WgpuHost) -> KernelRunner:
    return KernelRunner(host)
