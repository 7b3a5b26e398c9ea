"""The WebGPU backend: a model's graph, lowered once to a flat list of dispatches that the host replays.

A decode step reads and advances the state buffer on the GPU, so the host only says "again": several steps are in flight
and their ids are read late, from a ring. Reading each token before the next would cap a fast GPU at some 400 tok/s.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

import numpy as np

from py_core.backends.base import BackendError, Capabilities, Progress, Session, check_prefill
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.lowering import RING, STATE_HEADER, Buffers, KernelBuilder, Lowering, Plan, state_bytes
from py_core.backends.webgpu.tuning import KernelShapes, choose_shapes
from py_core.backends.webgpu.weights import WeightArena
from py_core.engine.sampling import SamplingParams
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

SLOTS = 4
_BATCH_SECONDS = 0.025
_MAX_BATCH = 32


async def load_webgpu(
    host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, max_context: int = 8192, kv_format: str = "kv_f32",
    shapes: KernelShapes | None = None,
) -> WebGPUBackend:  # fmt: skip
    """Compile the model for the host's adapter and bring its weights there. Raises BackendError, GGUFError, EOFError.

    `shapes` overrides the choice by adapter, for tests.
    """
    backend = WebGPUBackend(host, header, config, graph, max_context, kv_format, shapes)
    await host.upload(source, backend.arena.segments, progress)
    await host.check()
    return backend


class WebGPUBackend:
    """See `Backend` for the contract of each method. Made by `load_webgpu`."""

    def __init__(
        self, host: Host, header: GGUFHeader, config: ModelConfig, graph: Graph, max_context: int, kv_format: str,
        shapes: KernelShapes | None,
    ) -> None:  # fmt: skip
        adapter = host.adapter
        self.capabilities = Capabilities("webgpu", adapter.name, adapter.software)
        self.context_length = min(config.max_position_embeddings, max_context)
        self._host, self._config = host, config
        self._shapes = shapes or choose_shapes(adapter, config.head_dim)
        self.arena = WeightArena(host, {name: header.tensors[name] for name in graph.weights})
        self._buffers = Buffers(
            state=self._buffer(STATE_HEADER + 16 * self._shapes.max_rows, "state"),
            history=self._buffer(SLOTS * RING * 4, "history"),
            logits=self._buffer(config.vocab_size * 4, "logits"),
        )
        kv_bytes = 2 if kv_format == "kv_f16" else 4
        self._pages = KVPages(host, config, SLOTS, self.context_length, kv_bytes)
        builder = KernelBuilder(host, self._shapes)
        lowering = Lowering(
            host, config, graph, self.arena, builder, self._buffers, self._pages, kv_format, self.context_length
        )
        self._plans = {rows: lowering.plan(rows) for rows in ("one", "few", "many")}
        self._samplers = {name: lowering.sampler(name) for name in ("argmax", "sample", "penalties")}
        self._recorded: dict[tuple[str, int], int] = {}
        self._generation = self._pages.generation
        self._free_slots = list(range(SLOTS))[::-1]
        self._logits_of: Session | None = None
        self._lock = asyncio.Lock()
        self._step_seconds = 1.0

    def new_session(self) -> Session:
        if not self._free_slots:
            raise BackendError(f"There are {SLOTS} conversations open already. Close one first.")
        return Session(self._free_slots.pop())

    async def prefill(self, session: Session, tokens: Sequence[int]) -> None:
        check_prefill(session, tokens, self._config.vocab_size, self.context_length)
        async with self._lock:
            session.tokens.extend(tokens)
            await self._run_pending(session)

    async def decode(self, session: Session, n: int, sampling: SamplingParams) -> AsyncIterator[list[int]]:
        n = min(n, self.context_length - session.length)
        if n <= 0 or not session.tokens:
            return
        async with self._lock:
            if self._logits_of is not session or session.stored < session.length - 1:
                session.stored = min(session.stored, session.length - 1)
                await self._run_pending(session)
            in_flight: deque[tuple[int, asyncio.Future[list[int]]]] = deque()
            start, submitted = session.length, 0
            # What is sampled first: the logits at hand, or those of the token still pending.
            first = [] if session.stored == session.length else ["step"]
            self._write_state(session, sampling)
            self._logits_of = None
            arrived = time.perf_counter()
            try:
                while in_flight or submitted < n:
                    while submitted < n and len(in_flight) < 2:
                        position = start + submitted
                        count = min(self._batch(), n - submitted, RING - position % RING)
                        self._submit_steps(session, position, count, first if not submitted else ["step"], sampling)
                        in_flight.append((count, asyncio.ensure_future(self._read_ids(session, position, count))))
                        submitted += count
                    count, future = in_flight.popleft()
                    ids = await future
                    now = time.perf_counter()
                    self._step_seconds, arrived = (now - arrived) / count, now
                    session.tokens.extend(ids)
                    session.stored = session.length - 1
                    yield ids
            finally:
                # Steps past the end wrote keys that nothing points at; their ids are not waited for.
                for _, future in in_flight:
                    future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def logits(self, session: Session) -> np.ndarray:
        async with self._lock:
            if self._logits_of is not session:
                session.stored = min(session.stored, session.length - 1)
            await self._run_pending(session)
            data = await self._host.read(self._buffers.logits.buffer, 0, self._buffers.logits.size)
        return np.frombuffer(data, np.float32).copy()

    def truncate(self, session: Session, length: int) -> None:
        del session.tokens[length:]
        # The last token runs again: its logits are gone.
        session.stored = min(session.stored, max(length - 1, 0))
        self._pages.release(session.slot, session.stored)
        if self._logits_of is session:
            self._logits_of = None

    def free(self, session: Session) -> None:
        self.truncate(session, 0)
        self._free_slots.append(session.slot)

    def close(self) -> None:
        self._host.close()

    async def _run_pending(self, session: Session) -> None:
        """Run the tokens whose keys and values are not stored yet; the logits are then those of the last one."""
        while session.stored < session.length:
            start, stop = session.stored, min(session.stored + self._shapes.max_rows, session.length)
            rows = [(session.tokens[at], at, session.slot) for at in range(start, stop)]
            self._pages.reserve(session.slot, stop)
            self._host.write(self._buffers.state.buffer, 0, state_bytes(rows))
            pass_ids = [self._record("body", len(rows))]
            if stop == session.length:
                pass_ids.append(self._record("head", 1))
                self._logits_of = session
            else:
                self._logits_of = None
            self._host.submit(pass_ids)
            session.stored = stop
            # Wait, so that the queue stays short and whoever wants to stop is heard.
            await self._host.read(self._buffers.state.buffer, 0, 4)

    def _submit_steps(
        self, session: Session, position: int, count: int, first: list[str], sampling: SamplingParams
    ) -> None:
        self._pages.reserve(session.slot, position + count)
        sampler = ["penalties"] if sampling.penalizes else []
        sampler.append("argmax" if sampling.temperature == 0 else "sample")
        names = first + sampler + (["step", *sampler] * (count - 1))
        self._host.submit([self._record(name, 1) for name in names])

    async def _read_ids(self, session: Session, position: int, count: int) -> list[int]:
        offset = (session.slot * RING + position % RING) * 4
        data = await self._host.read(self._buffers.history.buffer, offset, count * 4)
        return np.frombuffer(data, np.uint32).tolist()

    def _write_state(self, session: Session, sampling: SamplingParams) -> None:
        """The last token becomes row 0; the ring gets the tokens that penalties look back at."""
        last = session.length - 1
        state = state_bytes(
            [(session.tokens[last], last, session.slot)],
            seed=sampling.seed, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p,
            min_p=sampling.min_p, repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty, frequency_penalty=sampling.frequency_penalty,
            penalty_window=sampling.penalty_window,
        )  # fmt: skip
        self._host.write(self._buffers.state.buffer, 0, state)
        if sampling.penalizes:
            ring = np.zeros(RING, np.uint32)
            first = max(0, session.length - RING)
            ring[np.arange(first, session.length) % RING] = session.tokens[first:]
            self._host.write(self._buffers.history.buffer, session.slot * RING * 4, ring.tobytes())

    def _batch(self) -> int:
        """Steps in one submission: some 25 ms of work, so that Stop and the first token are prompt."""
        return max(1, min(_MAX_BATCH, int(_BATCH_SECONDS / self._step_seconds)))

    def _record(self, name: str, m: int) -> int:
        """The id of a recorded list, made on first use and again when the pages have moved."""
        if self._generation != self._pages.generation:
            for recorded in self._recorded.values():
                self._host.forget(recorded)
            self._recorded.clear()
            self._generation = self._pages.generation
        rows, m = self._size_class(m)
        key = (name, m)
        if key not in self._recorded:
            plan: Plan = self._plans[rows]
            kernels = {
                "body": plan.body,
                "head": plan.head,
                "step": [*plan.body, *plan.head],
            }.get(name) or [self._samplers[name]]
            self._recorded[key] = self._host.record(plan.dispatches(kernels, m))
        return self._recorded[key]

    def _size_class(self, m: int) -> tuple[str, int]:
        """Which plan serves m rows, and m rounded up so that few lists are recorded."""
        if m == 1:
            return "one", 1
        if m <= 8:
            return "few", -(-m // self._shapes.batch_tile) * self._shapes.batch_tile
        return "many", min(-(-m // 32) * 32, self._shapes.max_rows)

    def _buffer(self, size: int, label: str) -> Binding:
        return Binding(self._host.create_buffer(size, label), 0, size)
