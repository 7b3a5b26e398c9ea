"""A backend's report of its memory, by owner. Tiny models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from py_core.backends.memory_use import HOT, PageBytes
from py_core.backends.wasm.backend import WasmBackend
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.paging.page_table import PAGE
from tests.backends.backend_pairs import Pair, open_pair, prompt
from tests.tiny.adapters import drawn
from tests.tiny.llama import TinyLlama

CONTEXT = 6 * PAGE


@pytest.fixture(params=["webgpu", "wasm"])
async def tiny(request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm) -> AsyncIterator[Pair]:
    tiny = TinyLlama(tied=False, context=CONTEXT)
    host = WgpuHost() if request.param == "webgpu" else WasmtimeHost(kernel_wasm())
    pair = await open_pair(tiny.write(tmp_path / "tiny.gguf"), host)
    yield pair
    pair.other.close()


async def test_pages_belong_to_conversations_then_to_who_begins_alike_then_to_nobody(tiny: Pair) -> None:
    backend, engine = tiny.other, Engine(tiny.other, ())
    before = backend.memory()
    assert before.pages[HOT] == PageBytes(0, 0, before.pages[HOT].free)
    assert before.weights > 0 < before.scratch
    first, second = engine.new_sequence(), engine.new_sequence()
    await engine.prefill(first, prompt(2 * PAGE + 5), Timings())
    page = backend.memory().pages[HOT].conversations // 3
    assert backend.memory().pages[HOT].conversations == 3 * page > 0
    await engine.prefill(second, [*prompt(2 * PAGE), 7, 8], Timings())
    assert backend.memory().pages[HOT].conversations == 4 * page, "what both begin with is counted once"
    engine.free(second)
    engine.free(first)
    after = backend.memory().pages[HOT]
    assert (after.conversations, after.kept) == (0, 4 * page)
    assert (after.kept + after.free) >= before.pages[HOT].free
    assert backend.memory().weights == before.weights


@pytest.mark.every_backend
async def test_all_memory_has_an_owner_and_a_set_of_matrices_is_its_own(tiny: Pair) -> None:
    backend = tiny.other

    def there() -> int:
        if isinstance(backend, WasmBackend):
            return backend.pages.store.end
        assert isinstance(backend, WebGPUBackend)
        return sum(backend.device.host.buffer_bytes().values())

    assert backend.memory().adapters == 0
    assert backend.memory().total == there()
    await backend.add_adapter(drawn(tiny.numpy.graph, 1))
    assert backend.memory().adapters > 0
    sequence = backend.new_sequence()
    await backend.prefill(sequence, prompt(CONTEXT))
    assert backend.memory().total == there()
    backend.free(sequence)
    assert backend.memory().total == there()
    assert sum(nbytes for _, _, nbytes in backend.memory().rows()) == backend.memory().total
