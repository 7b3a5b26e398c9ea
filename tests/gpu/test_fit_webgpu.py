"""What is told before a model is loaded is what a GPU then gets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from app.template_renderer import native_renderer
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.fit import memory_need
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.models.registry import describe_model


class Counting(WgpuHost):
    """Counts the bytes of the buffers that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}

    def create_buffer(self, size: int, label: str) -> int:
        buffer = super().create_buffer(size, label)
        self.sizes[buffer] = size
        return buffer

    def destroy_buffer(self, buffer: int) -> None:
        self.sizes.pop(buffer, None)
        super().destroy_buffer(buffer)


async def test_a_gpu_takes_as_much_memory_as_was_told(model_path: Path) -> None:
    host = Counting()
    model = await load_model(FileSource(model_path), partial(load_webgpu, host), native_renderer())
    header = await read_header(FileSource(model_path))
    need = memory_need(header.tensors, *describe_model(header), "webgpu", adapter=host.adapter)
    told = need.at(1024).total + int((8192 - 1024) * need.token_scratch)
    assert told == pytest.approx(sum(host.sizes.values()), rel=0.02)
    model.close()
