"""The WebGPU backend: a model's graph, lowered once to a flat list of dispatches that the host replays."""

from __future__ import annotations

import asyncio

import numpy as np

from py_core.backends.base import Capabilities, Progress, Session, check_formats
from py_core.backends.pipelined import SLOTS, PipelinedBackend
from py_core.backends.sampling_state import RING, ROW_BYTES, STATE_HEADER
from py_core.backends.webgpu.attention import NEAR, reach_of
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.layout import LAYOUTS
from py_core.backends.webgpu.lowering import Buffers, KernelBuilder, Lowering
from py_core.backends.webgpu.plan import Plan
from py_core.backends.webgpu.tuning import FEW_ROWS, KernelShapes, choose_shapes
from py_core.backends.webgpu.weights import WeightArena
from py_core.engine.sampling import SamplingParams
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph


async def load_webgpu(
    host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, max_context: int = 8192,
    shapes: KernelShapes | None = None,
) -> WebGPUBackend:  # fmt: skip
    """Compile the model for the host's adapter and bring its weights there. Raises BackendError, GGUFError, EOFError.

    `shapes` overrides the choice by adapter, for tests.
    """
    backend = WebGPUBackend(host, header, config, graph, max_context, shapes)
    await backend.arena.upload(source, progress)
    await host.check()
    return backend


class WebGPUBackend(PipelinedBackend):
    """See `Backend` for the contract of each method. Made by `load_webgpu`."""

    def __init__(
        self, host: Host, header: GGUFHeader, config: ModelConfig, graph: Graph, max_context: int,
        shapes: KernelShapes | None,
    ) -> None:  # fmt: skip
        check_formats(header.tensors, graph.weights, LAYOUTS, "GPU")
        adapter = host.adapter
        self._shapes = shapes or choose_shapes(adapter, config.head_dim)
        context_length = min(config.max_position_embeddings, max_context)
        capabilities = Capabilities("webgpu", adapter.name, adapter.software)
        super().__init__(capabilities, context_length, config.vocab_size, self._shapes.max_rows)
        self._host = host
        self.arena = WeightArena(host, {name: header.tensors[name] for name in graph.weights})
        self._buffers = Buffers(
            state=self._buffer(STATE_HEADER + ROW_BYTES * self._shapes.max_rows, "state"),
            history=self._buffer(SLOTS * RING * 4, "history"),
            logits=self._buffer(config.vocab_size * 4, "logits"),
        )
        self._pages = KVPages(host, config, SLOTS, context_length)
        builder = KernelBuilder(host, self._shapes)
        lowering = Lowering(host, config, graph, self.arena, builder, self._buffers, self._pages, context_length)
        self._plans = {rows: lowering.plan(rows) for rows in ("one", "few", "many")}
        self._samplers = {name: lowering.sampler(name) for name in ("argmax", "sample", "penalties")}
        self._recorded: dict[tuple[str, int, int], int] = {}
        self._generation = self._pages.generation

    def close(self) -> None:
        self._host.close()

    async def _reserve(self, slot: int, length: int) -> None:
        self._pages.reserve(slot, length)

    def _release(self, slot: int, length: int) -> None:
        self._pages.release(slot, length)

    def _write_state(self, data: bytes) -> None:
        self._host.write(self._buffers.state.buffer, 0, data)

    def _write_history(self, slot: int, ring: np.ndarray) -> None:
        self._host.write(self._buffers.history.buffer, slot * RING * 4, ring.tobytes())

    async def _run_rows(self, m: int, length: int, last: bool) -> None:
        self._host.submit([self._record("body", m, length), *([self._record("head", 1, length)] if last else [])])
        await self._host.read(self._buffers.state.buffer, 0, 4)

    def _start_steps(
        self, session: Session, position: int, count: int, forward_first: bool, sampling: SamplingParams
    ) -> asyncio.Future[list[int]]:
        sampler = ["penalties"] if sampling.penalizes else []
        sampler.append("argmax" if sampling.temperature == 0 else "sample")
        names = (["step"] if forward_first else []) + sampler + ["step", *sampler] * (count - 1)
        self._host.submit([self._record(name, 1, position + count) for name in names])
        return asyncio.ensure_future(self._read_ids(session, position, count))

    async def _read_ids(self, session: Session, position: int, count: int) -> list[int]:
        offset = (session.slot * RING + position % RING) * 4
        data = await self._host.read(self._buffers.history.buffer, offset, count * 4)
        return np.frombuffer(data, np.uint32).tolist()

    async def _read_logits(self) -> np.ndarray:
        data = await self._host.read(self._buffers.logits.buffer, 0, self._buffers.logits.size)
        return np.frombuffer(data, np.float32).copy()

    def _record(self, name: str, m: int, length: int) -> int:
        """The id of a recorded list for m rows of sequences of up to `length` tokens.

        Made on first use and again when the pages have moved.
        """
        if self._generation != self._pages.generation:
            for recorded in self._recorded.values():
                self._host.forget(recorded)
            self._recorded.clear()
            self._generation = self._pages.generation
        rows, m = self._size_class(m)
        # Other attention kernels do not split sequences.
        reach = reach_of(length) if self._shapes.flash_attention and rows != "many" else NEAR
        key = (name, m, reach)
        if key not in self._recorded:
            plan: Plan = self._plans[rows]
            kernels = {
                "body": plan.body,
                "head": plan.head,
                "step": [*plan.body, *plan.head],
            }.get(name) or [self._samplers[name]]
            self._recorded[key] = self._host.record(plan.dispatches(kernels, m, reach))
        return self._recorded[key]

    def _size_class(self, m: int) -> tuple[str, int]:
        """Which plan serves m rows, and m rounded up so that few lists are recorded."""
        if m == 1:
            return "one", 1
        if m <= FEW_ROWS:
            return "few", -(-m // self._shapes.batch_tile) * self._shapes.batch_tile
        return "many", min(-(-m // 32) * 32, self._shapes.max_rows)

    def _buffer(self, size: int, label: str) -> Binding:
        return Binding(self._host.create_buffer(size, label), 0, size)
