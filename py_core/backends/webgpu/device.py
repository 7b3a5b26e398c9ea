"""The kernels of the WebGPU backend: a graph, lowered once to a flat list of dispatches that the host replays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from py_core.adapters.head import NeighbourAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.backend_errors import DeviceLostError
from py_core.backends.checks import MAX_LOGIT_ROWS, check_formats
from py_core.backends.grammar_states import grammar_bytes
from py_core.backends.memory_use import MemoryUse, page_bytes
from py_core.backends.pass_blocks import least_rows
from py_core.backends.protocols import Capabilities, Progress
from py_core.backends.sampling_state import (
    BIAS_BYTES,
    RING,
    ROW_BYTES,
    STATE_HEADER,
    adapter_of,
    has_grammars,
    head_adapters_of,
    rings_span,
    sampled_in,
    state_bytes,
)
from py_core.backends.webgpu.adapter_plans import AdapterPlans
from py_core.backends.webgpu.attention import SHORT, length_class_of
from py_core.backends.webgpu.device_guesses import DeviceGuesses
from py_core.backends.webgpu.host import HEAD_ADAPTERS, LORA_SET, PAGES, WEIGHTS, Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kernel_shapes import FEW_ROWS, INTEGER_TILE, KernelShapes, choose_halves, choose_shapes
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.lowering.head import ADAPTED
from py_core.backends.webgpu.lowering.model import Buffers, PlanLowering
from py_core.backends.webgpu.model_on_device import PACK_ROWS, ModelOnDevice
from py_core.backends.webgpu.persistence import Persistence
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.settings import DEFAULTS, DeviceSettings
from py_core.backends.webgpu.shape_tuning import IsWanted, ShapeTuning, TuningStore
from py_core.backends.webgpu.weights.arena import WeightArena
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.messages import Message
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_table import PAGE, kept_rows
from py_core.paging.sequence_slots import SLOTS
from py_core.paging.tiers import TierPolicy
from py_core.sampling import SamplingParams, Unmasked

_SCORED, _UNMASKED = "scored", "unmasked"
T = TypeVar("T")

_WAITED_IN_VAIN = Message(
    "gpu.waited-in-vain",
    "Parts of a computation on the graphics card waited for each other in vain. Load the model again to continue.",
)

_ONLY_SOFTWARE = Message(
    "gpu.only-software",
    "The connection to the graphics card was lost, and only a software adapter is left, which is "
    "slow. Load the model again to continue.",
)


class WebGPUDevice:
    """See `Device` for the contract of each method."""

    BATCH_SECONDS = 0.006  # a browser reports a batch's end late: many short batches keep the GPU busy
    RESTARTS: tuple[type[Exception], ...] = (DeviceLostError,)
    restarts = 0
    """The host itself reports that it was lost."""

    def __init__(
        self, host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
        tuning: TuningStore | None, shapes: KernelShapes | None, tiers: TierPolicy | None = None,
        settings: DeviceSettings = DEFAULTS,
    ) -> None:  # fmt: skip
        check_formats(header.tensors, graph.weights, LAYOUTS, "GPU")
        self.host, self._source, self.config, self.graph = host, source, config, graph
        self.tiers = None if graph.stays_hot or config.block != 1 else tiers
        self._tensors = {name: header.tensors[name] for name in graph.weights}
        self._wanted_shapes, self._store, self._settings = shapes, tuning, settings
        self._tuning: ShapeTuning | None = None
        self._persistence: Persistence | None = None
        self.guesses = DeviceGuesses()
        self.hears_together = host.hears_together
        self._head_adapters: dict[int, NeighbourAdapter] = {}
        """The adapters at the head's input, by number."""
        self._shapes: KernelShapes
        self.capabilities = self._on_adapter()

    async def load(self, progress: Progress | None) -> None:
        """Build everything that lives on the host's device, and bring the weights there."""
        host, config = self.host, self.config
        self._shapes = replace(self._shapes, halves=await choose_halves(host))
        self.arena = WeightArena(host, self._tensors)
        self._buffers = Buffers(
            state=self._buffer(STATE_HEADER + ROW_BYTES * self._shapes.max_rows, "state"),
            history=self._buffer(SLOTS * RING * 4, "history"),
            logits=self._buffer(MAX_LOGIT_ROWS * config.vocab_size * 4, "logits"),
            grammars=self._buffer(grammar_bytes(config.vocab_size), "grammars"),
            biases=self._buffer(SLOTS * BIAS_BYTES, "biases"),
        )
        builder = KernelBuilder(host, self._shapes)
        pipeline = builder.pipeline if self.tiers else None
        self.pages = KVPages(host, config, self.graph, SLOTS, pipeline, self._settings)
        lowering = PlanLowering(
            host, config, self.graph, self.arena, builder, self._buffers, self.pages, self._settings.logit_bytes
        )
        self._tuning = self._persistence = None
        if self._store and self._shapes.lanes > 1:
            self._tuning = ShapeTuning(host, builder, self._store, lowering.measured, self._settings.measure)
            await self._tuning.recall()
        self._some_rows = lowering.some_rows
        self._plans = {rows: lowering.plan(rows) for rows in lowering.passes}
        if self._tuning:
            self._persistence = Persistence(host, lowering, self._buffers, self._tuning, self._settings)
        self._samplers = {name: lowering.sampler(name) for name in ("argmax", "sample", "penalties")}
        b = self._buffers
        guess = self.guesses.place(host, builder, b.state, b.history, b.grammars, config)
        self._samplers |= {"guess": guess, "masks": lowering.masks(), "follow": lowering.follow()}
        self._recorded: dict[tuple[str, int, int, int], int] = {}
        self._lowering, self._sets = lowering, AdapterPlans(lowering)
        of_packs = KernelBuilder(host, replace(self._shapes, max_rows=PACK_ROWS))
        of_packs.usual_tiles = builder.usual_tiles
        self.model = ModelOnDevice(host, config, self.graph, self.arena, lowering.vectors, lowering.angles, of_packs)
        self._made_later: dict[str, list[Kernel]] = {}
        self._changed_heads: dict[str, list[Kernel]] = {}
        self._head_numbers, self._head_kind = np.zeros(0, np.uint32), ""
        self._follows = False
        """True if a row of the state follows a grammar."""
        self._tap_buffers: dict[str, list[Binding]] = {}
        self._generation = self.pages.generation
        await self.arena.upload(self._source, progress)
        for name, factor in self.graph.factors.items():
            place, nbytes = lowering.vectors.named(name), 4 * self.graph.weights[name][0]
            values = np.frombuffer(await host.read(place.buffer, place.offset, nbytes), np.float32)
            host.write(place.buffer, place.offset, (values * np.float32(factor)).tobytes())
        await host.check()

    @property
    def tuned_tokens(self) -> int:
        """The tokens for which the slot of `tune` has pages: those of the longest pass, and half of SHORT."""
        return min(max(self.max_rows, SHORT // 2), self.config.context_length)

    async def tune(self, slot: int, is_wanted: IsWanted) -> None:
        """Measure the kernels whose fastest shapes are not known, and run these then. See `ShapeTuning.tune`."""
        if not (tuning := self._tuning):
            return
        if await tuning.tune(self._buffers.state, slot, is_wanted):
            await tuning.recall()
            plans = {rows: self._lowering.plan(rows) for rows in self._lowering.passes}
            await self.host.check()
            self._plans |= plans
            self.model.builder.usual_tiles = tuning.builder.usual_tiles
        assert self._persistence
        try:
            await self._persistence.choose(self._plans["one"], slot, self.tuned_tokens - 1, is_wanted)
        finally:
            self._plans |= self._persistence.plans
            self._forget_lists()
        self._tuning = None

    def _on_adapter(self) -> Capabilities:
        """Choose everything that depends on the adapter."""
        adapter = self.host.adapter
        self._shapes = self._wanted_shapes or choose_shapes(adapter, self.config.head_dim)
        if self.graph.delta_rules:  # a pass takes a state for each of its pages
            self._shapes = replace(self._shapes, max_rows=min(self._shapes.max_rows, 2 * PAGE))
        if (least := least_rows(self.config)) > self._shapes.max_rows:
            self._shapes = replace(self._shapes, max_rows=least)
        if self.tiers:  # the other kernel of attention reads hot pages only
            self._shapes = replace(self._shapes, flash_attention=True)
        return Capabilities("webgpu", adapter.name, adapter.software)

    async def reopen(self, at_once: bool) -> None:
        """Replace a lost device by a new one; `load` brings its contents back. Raises DeviceLostError."""
        if not at_once:
            await asyncio.sleep(self._settings.pause)
        await self.host.reopen()
        if self.host.adapter.software and not self.capabilities.software:
            raise DeviceLostError(_ONLY_SOFTWARE)
        self.capabilities = self._on_adapter()
        await self._source.rewind()

    @property
    def max_rows(self) -> int:
        return self._shapes.max_rows

    async def place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        if number not in self._sets:  # sets of a lost device come back when it is rebuilt
            await self._sets.add(number, adapter, self._plans)
            await self.host.check()

    def remove_adapter(self, number: int) -> None:
        """No sequence runs with this set any more."""
        self._forget_lists(number)
        self._sets.remove(number)

    async def place_head_adapter(self, number: int, adapter: NeighbourAdapter) -> None:
        self._head_adapters[number] = adapter
        heads = self._lowering.heads
        if heads.write(number, adapter):
            self._forget_lists()
        if not self._changed_heads:
            made = heads.changed()
            await self.host.check()
            self._changed_heads = made

    def remove_head_adapter(self, number: int) -> None:
        """No row has this adapter at its head's input any more."""
        self._head_adapters.pop(number, None)

    def close(self) -> None:
        self.host.close()

    def memory(self, limit: int | None) -> MemoryUse:
        held, pages = dict(self.host.buffer_bytes()), self.pages
        weights, _ = held.pop(WEIGHTS, 0), held.pop(PAGES, 0)
        adapters = held.pop(LORA_SET, 0) + held.pop(HEAD_ADAPTERS, 0)
        by_tier = {tier.name.lower(): page_bytes(pages.tables(tier), pages.there(tier), tier) for tier in pages.tiers}
        return MemoryUse(weights, adapters, sum(held.values()), by_tier, limit=limit)

    @property
    def page_format(self) -> str:
        tiers = ", tiers" if self.tiers else ""  # a backend of exact pages takes no demoted ones
        rows = f", {count} rows" if (count := kept_rows(self.graph)) else ""
        return f"webgpu float32, {self.pages.page_bytes}{rows}{tiers}"

    def write_state(self, data: bytes) -> None:
        self.host.write(self._buffers.state.buffer, 0, data)
        self.guesses.text_of = None
        # The adapters that the state names decide which kernels run.
        self._sets.number = adapter_of(data)
        self._head_numbers, self._follows = head_adapters_of(data), has_grammars(data)
        self._head_kind = ADAPTED if self._head_adapters.keys() & self._head_numbers.tolist() else ""

    def write_biases(self, slot: int, data: bytes) -> None:
        self.host.write(self._buffers.biases.buffer, slot * BIAS_BYTES, data)

    def write_grammar_state(self, offset: int, data: bytes) -> None:
        self.host.write(self._buffers.grammars.buffer, offset, data)

    def write_history(self, slot: int, ring: np.ndarray) -> None:
        self.host.write(self._buffers.history.buffer, slot * RING * 4, ring.tobytes())

    async def run_rows(self, m: int, length: int, logit_rows: int) -> None:
        self.host.submit(await self.lists_of(m, length, logit_rows))
        await self._sure(self.host.read(self._buffers.state.buffer, 0, 4))

    async def run_step(self, m: int, length: int) -> None:
        self.host.submit(await self._forward(m, length))

    async def lists_of(self, m: int, length: int, logit_rows: int) -> list[int]:
        """Return the recorded lists of a pass over m rows, of which the last ones get logits."""
        lists = [self._record("body", m, length)]
        if logit_rows > 1 and not self._head_kind and "heads" not in self._made_later:
            kernels = self._lowering.head()
            await self.host.check()
            self._made_later["heads"] = kernels
        if logit_rows:
            head = ("heads" if logit_rows > 1 else "head") + self._head_kind
            lists.append(self._record(head, logit_rows, length))
        return lists

    async def run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        rank = self._sets.rank
        key = f"taps of rank {rank} " + " ".join(names)
        if key not in self._made_later:
            kernels, buffers = self._lowering.tapped(names, rank)
            await self.host.check()
            self._made_later[key], self._tap_buffers[key] = kernels, buffers
        self.host.submit([self._record(key, m, length)])
        buffers = self._tap_buffers[key]
        read = [self.host.read(at.buffer, 0, at.size // self._shapes.max_rows * m) for at in buffers]
        return [np.frombuffer(data, np.float32).reshape(m, -1) for data in await asyncio.gather(*read)]

    async def run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        await self._make_scored()
        self.host.submit([self._record("body", m, length)])
        return await self._scored(targets)

    async def run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        await self._make_scored()
        place = self._lowering.residual
        self.host.write(place.buffer, place.offset, states.tobytes())
        return await self._scored(targets)

    async def _make_scored(self) -> None:
        if _SCORED not in self._made_later:
            kernels = self._lowering.heads.scored()
            await self.host.check()
            self._made_later[_SCORED] = kernels

    async def _scored(self, targets: Sequence[int]) -> np.ndarray:
        """Return log p of the targets, for the rows whose residual stream is there."""
        heads, m = self._lowering.heads, len(targets)
        for first in range(0, m, heads.chunk):
            rows = [(targets[row], 0, row) for row in range(first, min(first + heads.chunk, m))]
            numbers = self._head_numbers[first : first + len(rows)].tolist()
            self.host.write(heads.targets.buffer, 0, state_bytes(rows, head_adapters=numbers))
            self.host.submit([self._record(_SCORED, len(rows), 1)])
        return np.frombuffer(await self.host.read(heads.scores.buffer, 0, 4 * m), np.float32)

    async def run_unmasked(
        self, m: int, length: int, first: int, sampling: SamplingParams, grammar_states: Sequence[int]
    ) -> Unmasked:
        assert self.config.diffusion is not None
        if _UNMASKED not in self._made_later:
            kernels = self._lowering.heads.unmasked(self.config.diffusion.mask, self._buffers.grammars)
            await self.host.check()
            self._made_later[_UNMASKED] = kernels
        heads, places = self._lowering.heads, len(grammar_states)
        self.host.submit([self._record("body", m, length)])
        for begin in range(0, places, heads.chunk):
            count = min(heads.chunk, places - begin)
            rows = [(0, first + begin + at, m - places + begin + at) for at in range(count)]
            states = grammar_states[begin : begin + count]
            self.host.write(heads.targets.buffer, 0, state_bytes(rows, sampling, grammar_states=states))
            self.host.submit([self._record(_UNMASKED, count, 1)])
        drawn = np.frombuffer(await self.host.read(heads.drawn.buffer, 0, 8 * m), np.uint32).reshape(m, 2)[-places:]
        return Unmasked(drawn[:, 0].astype(np.int64), drawn[:, 1].copy().view(np.float32))

    async def start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        m, length = len(places), max(position for _, position in places) + count
        forward, sample = await self._forward(m, length), await self._sampling(m, length, sampling)
        self.host.submit((forward if forward_first else []) + sample + [*forward, *sample] * (count - 1))
        return asyncio.ensure_future(self._sampled(places, count))

    async def start_guesses(
        self, rows: int, count: int, length: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        """Queue `count` passes of the only sequence over its last token and guesses of the next ones, of `rows` rows,
        which bring it to `length` tokens at most; plain steps with one row. A guess is made behind the last of them.
        """
        forward, sample = await self._forward(rows, length), await self._sampling(rows, length, sampling)
        guess = [self._record("guess", 1, length)]
        # The kernel has already made these rows: this says how many of them the passes take.
        self.host.write(self._buffers.state.buffer, 0, np.array([rows, rows], np.uint32).tobytes())
        self.guesses.begin_records()
        if rows > 1:
            self.host.submit([*forward, *sample, *guess] * count)
        else:
            first = [*forward, *sample] if forward_first else sample
            self.host.submit([*first, *[*forward, *sample] * (count - 1), *guess])
        future = asyncio.ensure_future(self._sure(self.guesses.read(count if rows > 1 else 1)))
        await asyncio.sleep(0)  # the read is queued before the next batch writes its records
        return future

    async def _forward(self, m: int, length: int) -> list[int]:
        """Return the recorded lists of a step of m rows, without those that sample."""
        return await self.lists_of(m, length, m) if m > 1 else [self._record(f"step{self._head_kind}", 1, length)]

    async def _sampling(self, m: int, length: int, sampling: Sequence[SamplingParams]) -> list[int]:
        """Return the recorded lists that sample m rows by these rules."""
        names = _samplers(sampling, self._follows)
        if "biases" in names and "biases" not in self._made_later:
            kernel = self._lowering.biases()
            await self.host.check()
            self._made_later["biases"] = [kernel]
        return [self._record(name, m, length) for name in names]

    async def _sampled(self, places: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
        rings = await self._sure(self.host.read(self._buffers.history.buffer, *rings_span(places)))
        return sampled_in(rings, places, count)

    async def read_logits(self, rows: int) -> np.ndarray:
        nbytes = rows * self.config.vocab_size * 4
        data = await self._sure(self.host.read(self._buffers.logits.buffer, 0, nbytes))
        return np.frombuffer(data, np.float32).reshape(rows, -1).copy()

    async def _sure(self, reading: Awaitable[T]) -> T:
        """Return what is read. Raises DeviceLostError if persistent kernels did not make it right: then everything is
        built again without them."""
        if not self._persistence or not self._persistence.plans:
            return await reading
        gave_up = asyncio.ensure_future(self._persistence.gave_up())
        found = await reading  # without a turn of the event loop before it: others may write there
        if await gave_up:
            raise DeviceLostError(_WAITED_IN_VAIN)
        return found

    def _record(self, name: str, m: int, length: int) -> int:
        """Return the id of a recorded list for m rows of sequences of up to `length` tokens.

        It is made on first use and again when the pages have moved.
        """
        if self._generation != self.pages.generation:
            self._forget_lists()
            self._generation = self.pages.generation
            self._plans |= self._persistence.fitting() if self._persistence else {}
        rows, m = self._size_class(name, m)
        key = (name, m, self._length_class(rows, length), self._sets.number)
        if key not in self._recorded:
            launches = self.launches(name, m, length)
            self._sets.bind()
            self._recorded[key] = self.host.record([launch.dispatch() for launch in launches])
        return self._recorded[key]

    def _forget_lists(self, adapter: int | None = None) -> None:
        """Drop recorded lists, those of one adapter or all: their bindings have moved."""
        for key in [key for key in self._recorded if adapter in (None, key[-1])]:
            self.host.forget(self._recorded.pop(key))

    def launches(self, name: str, m: int, length: int) -> list[Launch]:
        """Return the kernels of a list, as they are recorded for m rows."""
        rows, m = self._size_class(name, m)
        plan, length_class = self._sets.plans(self._plans)[rows], self._length_class(rows, length)
        # The head alone runs after a prefill's pass, whose state may have many rows.
        lists = {"body": plan.body, "head": self._plans["many"].head, "step": plan.step, **self._made_later}
        if name in self._changed_heads:
            lists[name] = [*(plan.body if name.startswith("step") else []), *self._changed_heads[name]]
        kernels = lists.get(name) or [self._samplers[name]]
        return [Launch(kernel, m, length_class) for kernel in kernels if kernel.splits(length_class)]

    def _length_class(self, rows: str, length: int) -> int:
        """Only the attention of few rows depends on the sequence's length."""
        return length_class_of(length) if self._shapes.flash_attention and rows != "many" else SHORT

    def _size_class(self, name: str, m: int) -> tuple[str, int]:
        """Return the plan that serves m rows of a list, and m rounded up so that few lists are recorded."""
        in_chunks = name in (_SCORED, _UNMASKED)
        for_many = name in self._tap_buffers or in_chunks
        if m == 1 and not for_many:
            return "one", 1
        if m <= FEW_ROWS and not for_many:
            return "few", -(-m // self._shapes.batch_tile) * self._shapes.batch_tile
        if m <= self._some_rows and not for_many:
            return "some", min(-(-m // INTEGER_TILE) * INTEGER_TILE, self._shapes.max_rows)
        most = self._lowering.heads.chunk if in_chunks else self._shapes.max_rows
        return "many", min(-(-m // 32) * 32, most)

    def _buffer(self, size: int, label: str) -> Binding:
        return Binding(self.host.create_buffer(size, label), 0, size)


def _samplers(sampling: Sequence[SamplingParams], follows: bool) -> list[str]:
    """Return the names of the lists that sample rows by these rules. follows: some follow a grammar."""
    before = ["biases"] * any(rules.biases for rules in sampling)
    before += ["penalties"] * any(rules.penalizes for rules in sampling) + ["masks"] * follows
    draw = sorted({"argmax" if rules.temperature == 0 else "sample" for rules in sampling})
    return before + draw + ["follow"] * follows
