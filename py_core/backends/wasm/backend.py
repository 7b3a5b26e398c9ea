"""The WASM backend: a model's graph as programs of SIMD kernels, on a pool of workers in the page or in wasmtime.

Two precisions: "precise" quantizes activations to 15 bits and gives the tokens of float32; "fast" quantizes them to 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

import numpy as np

from py_core.adapters.head import AnyHeadAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backends.base import BackendError, Capabilities, Progress, check_formats
from py_core.backends.memory_use import MemoryUse, page_bytes
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.sampling_state import (
    RING,
    adapter_of,
    head_adapters_of,
    rings_span,
    sampled_in,
)
from py_core.backends.wasm.head_programs import HeadPrograms
from py_core.backends.wasm.host import KernelHost, WorkersRestartedError
from py_core.backends.wasm.kv_pages import KVPages
from py_core.backends.wasm.layout import ABI, MATRIX_KINDS, Mode
from py_core.backends.wasm.lora_sets import LoraSets
from py_core.backends.wasm.lowering import ProgramLowering
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_table import PageTable
from py_core.paging.sequence_slots import SLOTS
from py_core.paging.tiers import Tier, TierPolicy
from py_core.sampling import SamplingParams
from py_core.training.session import Training, TrainingLostError

PRECISIONS = {"precise": Mode.PRECISE, "fast": Mode.FAST}

MAX_ROWS = 64
"""Rows in a pass of a prefill: some 150 ms of work on one core, so that Stop is heard."""


async def load_wasm(
    host: KernelHost, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, precision: str = "precise", tiers: TierPolicy | None = None,
) -> WasmBackend:  # fmt: skip
    """Lay the model out in the kernels' memory and bring its weights there. tiers: None keeps all pages hot.

    Raises BackendError, GGUFError, EOFError.
    """
    backend = WasmBackend(host, header, config, graph, precision, tiers)
    await backend.load(source, progress)
    return backend


class WasmBackend(PipelinedBackend):
    """See `Backend` for the contract of each method. Made by `load_wasm`."""

    RESTARTS = (WorkersRestartedError,)

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
        simd = "relaxed SIMD" if host.relaxed else "SIMD"
        workers = f"{host.workers} workers" if host.workers > 1 else "1 worker"
        capabilities = Capabilities("wasm", f"CPU, {workers}, {simd}", True, (precision,))
        super().__init__(capabilities, config.context_length, config.vocab_size, MAX_ROWS, graph)
        self._host, self._config, self._graph, self._tiers = host, config, graph, tiers
        self._restarts = host.restarts
        self._lowering = ProgramLowering(
            config, graph, header.tensors, PRECISIONS[precision], host.most_workers, MAX_ROWS, SLOTS
        )
        self._pages = self._lowering.pages
        self._pages.make_way = self._fit
        self._sets = LoraSets(self._lowering)
        self._adapted = False
        """Whether the state's rows run with a set of LoRA matrices."""
        self._heads = HeadPrograms(self._lowering)
        self._head_adapted = False
        """Whether a row of the state has an adapter at the head's input."""

    async def load(self, source: WeightSource, progress: Progress | None) -> None:
        await self._host.reserve(self._pages.end)
        for address, data in self._lowering.arena.writes:
            self._host.write(address, data)
        await self._host.upload(source, self._lowering.weights.jobs, progress)

    async def _restore(self) -> None:
        if self._restarts != self._host.restarts:  # maybe in a call that whoever made it did not wait for to its end
            self._restarts, self._lost, self._logits_of = self._host.restarts, True, None
        await super()._restore()

    async def _rebuild(self) -> None:
        """The memory is as it was, but for writes that were on their way: not those of an adapter that was added,
        since who places one waits until they are done."""
        self._pages.write_tables(self._host)

    async def open_training(self, layout: ParameterLayout) -> Training:
        from py_core.backends.wasm.training import open_wasm_training  # who only chats does not wait for it
        from py_core.training.backward import training_plan

        plan, lowering, pages = training_plan(self._graph, layout), self._lowering, self._pages
        self._losses = 0
        while True:
            try:
                await self._restore()  # pages make way, so their tables have to be there
                return await open_wasm_training(self._host, self._config, plan, lowering, pages)
            except (WorkersRestartedError, TrainingLostError) as error:
                self._lose(error)

    async def _place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        await self._sets.place(self._host, number, adapter)

    async def _place_head_adapter(self, number: int, adapter: AnyHeadAdapter) -> None:
        await self._heads.make(self._host)
        await self._lowering.head.place(self._host, self._pages, number, adapter)

    def close(self) -> None:
        self._host.close()

    async def _reserve(self, slot: int, first: int, length: int) -> None:
        table = self._shared_table
        for page, tier in table.aged(slot, first, self._tiers) if table and self._tiers else ():
            self._prefixes.rename(page, await self._pages.demote(self._host, page, tier))
        self._make_room(slot, first, length)
        while True:
            try:
                return await self._pages.reserve(self._host, slot, first, length)
            except BackendError:
                if not self._make_room(slot, first, length, most=0):
                    raise

    @property
    def _shared_table(self) -> PageTable | None:
        return self._pages.shared_table

    @property
    def _limited_pages(self) -> KVPages:
        return self._pages

    async def _shrink_pool(self, capacity: int) -> dict[int, int]:
        return await self._pages.shrink(self._host, capacity)

    def memory(self) -> MemoryUse:
        pages, weights, end = self._pages, self._lowering.weights.nbytes, self._lowering.arena.end
        tiers = (tier for tier in Tier if not tier or self._tiers)
        by_tier = {tier.name.lower(): page_bytes(pages.tables(tier), pages.there(tier), tier) for tier in tiers}
        return MemoryUse(weights, pages.bytes_of_others, end - weights, by_tier, limit=self._limit)

    @property
    def _layout_name(self) -> str:
        simd = "relaxed" if self._host.relaxed else "plain"  # they round differently
        tiers = ", tiers" if self._tiers else ""  # who wants exact pages takes none that were demoted
        return f"wasm {ABI}, {simd}, {self.capabilities.features[0]}, {self._pages.page_bytes(Tier.HOT)}{tiers}"

    async def _read_page(self, page: int) -> bytes:
        return await self._pages.read_page(self._host, page)

    async def _write_page(self, page: int, data: bytes) -> None:
        await self._pages.write_page(self._host, page, data)

    def _release(self, slot: int, length: int) -> None:
        self._pages.release(slot, length)

    def _sees(self, slot: int, position: int) -> bool:
        return self._pages.sees(slot, position)

    def _write_state(self, data: bytes) -> None:
        self._adapted, self._head_adapted = adapter_of(data) != 0, bool(head_adapters_of(data).any())
        self._host.write(self._lowering.state, data)

    def _write_history(self, slot: int, ring: np.ndarray) -> None:
        self._host.write(self._lowering.history + slot * RING * 4, ring.tobytes())

    async def _run_rows(self, m: int, length: int, logit_rows: int) -> None:
        await self._host.run(self._passes["body head" if logit_rows else "body"], 1)

    async def _run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        program, places = self._lowering.tapped(names, self._adapted)
        self._host.write(self._passes["tapped"], program)
        await self._host.run(self._passes["tapped"], 1)
        read = [await self._host.read(address, m * width * 4) for address, width in places]
        return [np.frombuffer(data, np.float32).reshape(m, -1) for data in read]

    async def _run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        return await self._scored("scored", targets)

    async def _run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        self._host.write(self._lowering.residual, states.tobytes())
        return await self._scored("head scored", targets)

    async def _scored(self, program: str, targets: Sequence[int]) -> np.ndarray:
        await self._heads.make(self._host)
        self._host.write(self._lowering.head.targets, np.array(targets, np.uint32).tobytes())
        await self._host.run(self._heads.of(self._adapted)[program], 1)
        return np.frombuffer(await self._host.read(self._lowering.head.scores, 4 * len(targets)), np.float32)

    async def _start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        sampler = _sampler(sampling)
        step = self._passes[f"step {sampler}"]
        if len(places) == 1:
            first = None if forward_first else self._host.run(self._lowering.programs[sampler], 1)
            steps = count if forward_first else count - 1
            return asyncio.ensure_future(_joined(first, self._host.run(step, steps) if steps else None))
        run = asyncio.ensure_future(self._host.run(step, count))
        offset, nbytes = rings_span(places)
        rings = asyncio.ensure_future(self._host.read(self._lowering.history + offset, nbytes))
        await asyncio.sleep(0)  # it is asked for before the next steps are queued
        if run.done() and run.exception():
            # New workers are there already: steps behind these would run over a state that may never have been written.
            await asyncio.gather(run, rings)
        return asyncio.ensure_future(_sampled(run, rings, places, count))

    @property
    def _passes(self) -> Mapping[str, int]:
        """The programs of the state's rows, by name."""
        programs = self._sets.programs if self._adapted else self._lowering.programs
        return {**programs, **self._heads.of(self._adapted)} if self._head_adapted else programs

    async def _read_logits(self, rows: int) -> np.ndarray:
        data = await self._host.read(self._lowering.logits, rows * self._vocab_size * 4)
        return np.frombuffer(data, np.float32).reshape(rows, -1).copy()


def _sampler(sampling: Sequence[SamplingParams]) -> str:
    """The name of the program that samples rows so."""
    greedy = {rules.temperature == 0 for rules in sampling}
    if len(greedy) > 1:
        return "penalties mixed"
    penalties = "penalties " if any(rules.penalizes for rules in sampling) else ""
    return penalties + ("argmax" if True in greedy else "sample")


async def _joined(first: Awaitable[list[int]] | None, rest: Awaitable[list[int]] | None) -> list[list[int]]:
    return [(await first if first is not None else []) + (await rest if rest is not None else [])]


async def _sampled(
    run: Awaitable[list[int]], rings: Awaitable[bytes], places: Sequence[tuple[int, int]], count: int
) -> list[list[int]]:
    _, data = await asyncio.gather(run, rings)
    return sampled_in(data, places, count)
