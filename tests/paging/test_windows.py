"""Layers with a window keep only the window in memory, on every backend, and answer as if they kept everything."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from py_core.backends.numpy.backend import NumpyBackend, load_weights
from py_core.backends.protocols import Backend
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.backends.webgpu.backend import load_webgpu
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.engine.engine import Engine, Timings
from py_core.fit import Need, memory_need
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model
from py_core.paging import page_table
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import collect, cosine
from tests.models.architectures.variants import VARIANTS

CONTEXT, SLACK = 640, 96
"""Windows have 16 tokens. A window and its slack take 3 pages, the context 10."""

GEMMA, GEMMA4 = (
    dataclasses.replace(
        VARIANTS[name], config={**VARIANTS[name].config, "max_position_embeddings": CONTEXT}, context=CONTEXT
    )
    for name in ("gemma2", "gemma4")
)


@dataclass
class Windowed:
    """A model with a window in every second layer, and numpy with memory for everything.

    `pages` are the bytes that keys and values take now.
    """

    backend: Backend
    reference: NumpyBackend
    need: Need
    pages: Callable[[], int]
    same: dict[int, TokenSequence] = field(default_factory=dict)
    """Sequences of the reference, by the numbers of the sequences that they are compared with."""

    async def read(self, sequence: TokenSequence, ids: list[int]) -> None:
        """Read ids, after which the logits must be those of the reference."""
        await self.backend.prefill(sequence, ids)
        await self.check(sequence)

    async def check(self, sequence: TokenSequence) -> None:
        ours = await self.backend.logits(sequence)
        assert cosine(ours, await self.reference.logits(await self.whole(sequence))) > 0.9999

    async def whole(self, sequence: TokenSequence) -> TokenSequence:
        """A sequence of the reference with the same tokens."""
        same = self.same.setdefault(sequence.number, self.reference.new_sequence())
        pairs = zip(same.tokens, sequence.tokens, strict=False)
        shared = next((at for at, (a, b) in enumerate(pairs) if a != b), min(same.length, sequence.length - 1))
        self.reference.truncate(same, shared)
        await self.reference.prefill(same, sequence.tokens[shared:])
        return same


class CountingGPU(WgpuHost):
    """Counts the bytes of the buffers with keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[int, int] = {}

    def create_buffer(self, size: int, label: str) -> int:
        buffer = super().create_buffer(size, label)
        if label == "keys and values":
            self.pages[buffer] = size
        return buffer

    def destroy_buffer(self, buffer: int) -> None:
        self.pages.pop(buffer, None)
        super().destroy_buffer(buffer)


class CountingMemory(WasmtimeHost):
    """Records the requested memory."""

    reserved = 0

    async def reserve(self, nbytes: int) -> None:
        self.reserved = max(self.reserved, nbytes)
        await super().reserve(nbytes)


@pytest.fixture(
    params=[
        "numpy",
        "webgpu",
        "wasm",
        "wasm gemma4",
        *(pytest.param(f"{one} gemma4", marks=pytest.mark.all) for one in ("numpy", "webgpu")),
    ]
)
async def model(
    request: pytest.FixtureRequest, tmp_path: Path, kernel_wasm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Windowed]:
    backend_name, _, heads_differ = request.param.partition(" ")
    source = FileSource((GEMMA4 if heads_differ else GEMMA).write(tmp_path / "tiny.gguf"))
    header = await read_header(source)
    config, graph = describe_model(header, CONTEXT, await read_rope_factors(source, header))
    weights = await load_weights(source, header, graph)
    reference = NumpyBackend(config, graph, weights)  # with more slack than context it returns no pages
    monkeypatch.setattr(page_table, "SLACK", SLACK)
    monkeypatch.setattr(page_table, "FIRST_PAGES", 2)
    need = memory_need(header.tensors, config, graph, backend_name)
    if backend_name == "numpy":
        backend = NumpyBackend(config, graph, weights)
        yield Windowed(backend, reference, need, lambda: bytes_of(backend))
    elif backend_name == "webgpu":
        gpu = CountingGPU()
        on_gpu = await load_webgpu(gpu, source, header, config, graph)
        yield Windowed(on_gpu, reference, need, lambda: sum(gpu.pages.values()))
        on_gpu.close()
    else:
        memory = CountingMemory(kernel_wasm())
        in_wasm = await load_wasm(memory, source, header, config, graph)
        begin = in_wasm.device.lowering.arena.end
        yield Windowed(in_wasm, reference, need, lambda: memory.reserved - begin)
        in_wasm.close()


def bytes_of(backend: NumpyBackend) -> int:
    return sum(cache.kv.nbytes for state in backend._states.values() for cache in state.caches.values())


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, GEMMA.config["vocab_size"], length).tolist()


async def test_memory_stays_at_what_was_told_and_logits_are_those_of_the_whole_text(model: Windowed) -> None:
    sequence = model.backend.new_sequence()
    for length in (60, 420, 1, 60):
        await model.read(sequence, text(length, seed=length))
    for _ in range(2):
        await collect(model.backend, sequence, 24)
        await model.check(sequence)
    assert sequence.length == 589
    # Two layers keep ten pages, two keep three; WASM's extents have eight.
    each = {0: {"wasm": 16}.get(model.need.backend, 10), 16: {"wasm": 8}.get(model.need.backend, 3)}
    told = sum(each[window] * page for window, page in zip(model.need.windows, model.need.layer_pages, strict=True))
    assert model.need.at(CONTEXT).pages == told
    assert model.pages() == told or (model.need.backend == "numpy" and told / 2 < model.pages() < told)


async def test_a_text_is_read_again_where_it_goes_back_further_than_what_is_kept(model: Windowed) -> None:
    sequence = model.backend.new_sequence()
    await model.backend.prefill(sequence, text(300))
    model.backend.truncate(sequence, 290)
    assert sequence.stored == 289
    await model.read(sequence, text(5, seed=1))
    model.backend.truncate(sequence, 40)
    assert sequence.stored == 0
    await model.read(sequence, text(90, seed=2))
    sequence.tokens.extend(text(200, seed=3))
    states = await model.backend.hidden(sequence, ["final_norm"], 30)
    expected = (await model.reference.hidden(await model.whole(sequence), ["final_norm"], 30))["final_norm"]
    assert min(map(cosine, states["final_norm"], expected)) > 0.9999
    ours = await model.backend.last_logits(sequence, 8)
    assert min(map(cosine, ours, await model.reference.last_logits(await model.whole(sequence), 8))) > 0.9999


@pytest.mark.parametrize("model", ["numpy"], indirect=True)
async def test_a_prompt_that_is_read_again_counts_as_read(model: Windowed) -> None:
    engine, sequence = Engine(model.backend, ()), model.backend.new_sequence()
    read: list[int] = []
    whole = text(300)
    for edited, reused in ((whole, 0), (whole[:280] + text(20, seed=1), 280), (whole[:50] + text(20, seed=2), 0)):
        timings = Timings()
        await engine.prefill(sequence, edited, timings, lambda done, total: read.append(done))
        assert (timings.reused_tokens, sequence.tokens) == (reused, edited)
        assert read[0] == reused
        read.clear()
        await model.check(sequence)


@pytest.mark.parametrize("model", ["webgpu"], indirect=True)
@pytest.mark.every_backend
async def test_a_text_goes_on_after_its_gpu_was_lost(model: Windowed) -> None:
    sequence = model.backend.new_sequence()
    await model.backend.prefill(sequence, text(330))
    model.backend.device.host._device.destroy()  # type: ignore[attr-defined]
    assert len(await collect(model.backend, sequence, 8)) == 8
    await model.check(sequence)
    model.backend.truncate(sequence, 20)
    await model.read(sequence, text(100, seed=1))


@pytest.mark.parametrize("model", ["webgpu", "wasm"], indirect=True)
@pytest.mark.every_backend
async def test_two_texts_share_the_pool(model: Windowed) -> None:
    first, second = model.backend.new_sequence(), model.backend.new_sequence()
    for length in (150, 70, 130):
        for sequence in (first, second):
            await model.backend.prefill(sequence, text(length, seed=length + sequence.number))
        await collect(model.backend, first, 8)
    await model.check(first)
    await model.check(second)
    model.backend.free(first)
    third = model.backend.new_sequence()
    await model.read(third, text(330, seed=9))
    await model.check(second)
