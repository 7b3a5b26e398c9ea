"""The kernels of the WASM backend: programs over one memory, on a pool of workers in the page or in wasmtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.backend_errors import BackendError, WorkersRestartedError
from py_core.backends.checks import check_formats
from py_core.backends.memory_use import MemoryUse, page_bytes
from py_core.backends.pass_blocks import least_rows
from py_core.backends.protocols import Capabilities, Progress
from py_core.backends.sampling_state import (
    BIAS_BYTES,
    RING,
    WAITS,
    adapter_of,
    has_grammars,
    head_adapters_of,
    rings_span,
    sampled_in,
)
from py_core.backends.wasm.head_programs import HeadPrograms
from py_core.backends.wasm.host import HEAP_BASE, KernelHost, Placed
from py_core.backends.wasm.layout import ABI, MATRIX_KINDS, Mode
from py_core.backends.wasm.lora_sets import LoraSets
from py_core.backends.wasm.lowering import ProgramLowering
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.sequence_slots import SLOTS
from py_core.paging.tiers import Tier, TierPolicy
from py_core.sampling import SamplingParams, Unmasked

PRECISIONS = {"precise": Mode.PRECISE, "fast": Mode.FAST}

MAX_ROWS = 64
"""Rows in a pass of a prefill: about 150 ms of work on one core, so that Stop is heard."""


class WasmDevice:
    """See `Device` for the contract of each method."""

    RESTARTS: tuple[type[Exception], ...] = (WorkersRestartedError,)
    BATCH_SECONDS = 0.025
    hears_together = False

    def __init__(
        self, host: KernelHost, header: GGUFHeader, config: ModelConfig, graph: Graph, precision: str,
        tiers: TierPolicy | None = None,
    ) -> None:  # fmt: skip
        if precision not in PRECISIONS:
            raise BackendError(
                "wasm.no-precision",
                "There is no precision {precision}; choose {precisions}.",
                precision=repr(precision),
                precisions=" or ".join(PRECISIONS),
            )
        check_formats(header.tensors, graph.weights, MATRIX_KINDS, "WASM")
        simd = "SIMD" if host.build == "simd" else "relaxed SIMD"
        workers = f"{host.workers} workers" if host.workers > 1 else "1 worker"
        self.capabilities = Capabilities("wasm", f"CPU, {workers}, {simd}", True, (precision,))
        self.host, self.config, self.graph = host, config, graph
        self.tiers = None if graph.stays_hot or config.block != 1 else tiers
        self.max_rows = max(MAX_ROWS, least_rows(config))
        mode = PRECISIONS[precision]
        self.lowering = ProgramLowering(host, config, graph, header.tensors, mode, self.max_rows, SLOTS)
        self.pages = self.lowering.pages
        self._sets = LoraSets(self.lowering)
        self._adapted = False
        """True if the state's rows run with a set of LoRA matrices."""
        self._heads = HeadPrograms(self.lowering)
        self._head_adapted = False
        """True if a row of the state has an adapter at the head's input."""
        self._follows = False
        """True if a row of the state follows a grammar."""

    async def load(self, source: WeightSource, progress: Progress | None) -> None:
        await self.host.reserve(self.pages.end)
        weights, factors = self.lowering.weights, self.graph.factors
        is_new = await self.host.upload(source, weights.jobs, Placed(weights.regions, repr(factors)), progress)
        changed = []
        for name, factor in factors.items() if is_new else ():
            address, nbytes = weights.vector(name), 4 * self.graph.weights[name][0]
            values = np.frombuffer(await self.host.read(address, nbytes), np.float32)
            changed.append((address, (values * np.float32(factor)).tobytes()))
        is_there = False
        while not is_there:
            for address, data in [*self.lowering.arena.writes, *changed]:
                self.host.write(address, data)
            with suppress(WorkersRestartedError):  # if workers die, what was written since the last answer is lost
                await self.host.read(HEAP_BASE, 0)
                is_there = True

    async def place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        await self._sets.place(self.host, number, adapter)

    async def place_head_adapter(self, number: int, adapter: NeighbourAdapter) -> None:
        await self._heads.make(self.host)
        await self.lowering.head.place(self.host, self.pages, number, adapter)

    def close(self) -> None:
        self.host.close()

    @property
    def restarts(self) -> int:
        return self.host.restarts

    def memory(self, limit: int | None) -> MemoryUse:
        pages, weights, end = self.pages, self.lowering.weights.nbytes, self.lowering.arena.end
        tiers = (tier for tier in Tier if not tier or self.tiers)
        by_tier = {tier.name.lower(): page_bytes(pages.tables(tier), pages.there(tier), tier) for tier in tiers}
        return MemoryUse(weights, pages.bytes_of_others, end - weights + pages.bytes_of_states, by_tier, limit=limit)

    @property
    def page_format(self) -> str:
        tiers = ", tiers" if self.tiers else ""  # a backend of exact pages takes no demoted ones
        return (
            f"wasm {ABI}, {self.host.build}, {self.capabilities.features[0]}, {self.pages.page_bytes(Tier.HOT)}{tiers}"
        )

    def write_state(self, data: bytes) -> None:
        self._adapted, self._head_adapted = adapter_of(data) != 0, bool(head_adapters_of(data).any())
        self._follows = has_grammars(data)
        self.host.write(self.lowering.state, data)

    def write_biases(self, slot: int, data: bytes) -> None:
        self.host.write(self.lowering.biases + slot * BIAS_BYTES, data)

    def write_grammar_state(self, offset: int, data: bytes) -> None:
        self.host.write(self.lowering.grammar_states + offset, data)

    def write_history(self, slot: int, ring: np.ndarray) -> None:
        self.host.write(self.lowering.history + slot * RING * 4, ring.tobytes())

    async def run_rows(self, m: int, length: int, logit_rows: int) -> None:
        await self.host.run(self._passes["body head" if logit_rows else "body"], 1)

    async def run_step(self, m: int, length: int) -> None:
        await self.run_rows(m, length, m)

    async def run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        program, places = self.lowering.tapped(names, self._adapted)
        self.host.write(self._passes["tapped"], program)
        await self.host.run(self._passes["tapped"], 1)
        read = [await self.host.read(address, m * width * 4) for address, width in places]
        return [np.frombuffer(data, np.float32).reshape(m, -1) for data in read]

    async def run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        return await self._scored("scored", targets)

    async def run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        self.host.write(self.lowering.residual, states.tobytes())
        return await self._scored("head scored", targets)

    async def _scored(self, program: str, targets: Sequence[int]) -> np.ndarray:
        await self._heads.make(self.host)
        self.host.write(self.lowering.head.targets, np.array(targets, np.uint32).tobytes())
        await self.host.run(self._heads.of(self._adapted)[program], 1)
        return np.frombuffer(await self.host.read(self.lowering.head.scores, 4 * len(targets)), np.float32)

    async def run_unmasked(
        self, m: int, length: int, first: int, sampling: SamplingParams, grammar_states: Sequence[int]
    ) -> Unmasked:
        await self._heads.make(self.host)
        await self.host.run(self._heads.of(self._adapted)["unmasked"], 1)
        data = await self.host.read(self.lowering.head.unmasked, 8 * len(grammar_states))
        drawn = np.frombuffer(data, np.uint32).reshape(-1, 2)
        return Unmasked(drawn[:, 0].astype(np.int64), drawn[:, 1].copy().view(np.float32))

    async def start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        sampler = _sampler(sampling, self._follows)
        step = self._passes[f"step {sampler}"]
        if len(places) == 1:
            first = None if forward_first else self.host.run(self.lowering.programs[sampler], 1)
            steps = count if forward_first else count - 1
            return asyncio.ensure_future(_joined(first, self.host.run(step, steps) if steps else None))
        if not forward_first:
            step, count = self.lowering.programs[sampler], 1
        run = asyncio.ensure_future(self.host.run(step, count))
        offset, nbytes = rings_span(places)
        rings = asyncio.ensure_future(self.host.read(self.lowering.history + offset, nbytes))
        await asyncio.sleep(0)  # the caller asks for it before the next steps are queued
        if run.done() and run.exception():
            # New workers are already there: steps behind these would run over a state that may never have been written.
            await asyncio.gather(run, rings)
        return asyncio.ensure_future(_sampled(run, rings, places, count))

    @property
    def _passes(self) -> Mapping[str, int]:
        """Return the programs of the state's rows, by name."""
        programs = self._sets.programs if self._adapted else self.lowering.programs
        return {**programs, **self._heads.of(self._adapted)} if self._head_adapted else programs

    async def read_logits(self, rows: int) -> np.ndarray:
        data = await self.host.read(self.lowering.logits, rows * self.config.vocab_size * 4)
        return np.frombuffer(data, np.float32).reshape(rows, -1).copy()


def _sampler(sampling: Sequence[SamplingParams], follows: bool) -> str:
    """Return the name of the program that samples rows by these rules. follows: some follow a grammar."""
    greedy = {rules.temperature == 0 for rules in sampling}
    if len(greedy) > 1:
        return "penalties mixed"
    changes = follows or any(rules.penalizes or rules.biases for rules in sampling)
    penalties = "penalties " if changes else ""
    return penalties + ("argmax" if True in greedy else "sample")


async def _joined(first: Awaitable[list[int]] | None, rest: Awaitable[list[int]] | None) -> list[list[int]]:
    ids = (await first if first is not None else []) + (await rest if rest is not None else [])
    return [[*ids[: ids.index(-1)], WAITS] if -1 in ids else ids]


async def _sampled(
    run: Awaitable[list[int]], rings: Awaitable[bytes], places: Sequence[tuple[int, int]], count: int
) -> list[list[int]]:
    _, data = await asyncio.gather(run, rings)
    return sampled_in(data, places, count)
