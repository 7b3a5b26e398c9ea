"""The WebGPU backend: a model's graph, lowered once to a flat list of dispatches that the host replays."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from statistics import median
from weakref import WeakSet

import numpy as np

from py_core.adapters.head import AnyHeadAdapter
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backends.base import (
    MAX_LOGIT_ROWS,
    BackendError,
    Capabilities,
    DeviceLostError,
    Progress,
    TokenSequence,
    check_formats,
)
from py_core.backends.in_flight import Batch, InFlight
from py_core.backends.memory_use import MemoryUse, page_bytes
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.sampling_state import (
    GREEDY,
    RING,
    ROW_BYTES,
    STATE_HEADER,
    adapter_of,
    head_adapters_of,
    rings_span,
    sampled_in,
    state_bytes,
)
from py_core.backends.webgpu.adapter_plans import AdapterPlans
from py_core.backends.webgpu.attention import SHORT, length_class_of
from py_core.backends.webgpu.autotune import TuningStore, tune
from py_core.backends.webgpu.device_guesses import DeviceGuesses
from py_core.backends.webgpu.head_lowering import kind_of
from py_core.backends.webgpu.host import HEAD_ADAPTERS, LORA_SET, PAGES, WEIGHTS, Binding, Host
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kv_pages import KVPages
from py_core.backends.webgpu.layout import LAYOUTS
from py_core.backends.webgpu.lowering import Buffers, PlanLowering
from py_core.backends.webgpu.model_on_device import PACK_ROWS, ModelOnDevice
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.profiling import (
    Limits,
    OnRound,
    Profile,
    measure_bandwidth,
    measure_flops,
    measure_kernels,
)
from py_core.backends.webgpu.settings import DEFAULTS, Settings
from py_core.backends.webgpu.tuning import FEW_ROWS, INTEGER_TILE, KernelShapes, choose_halves, choose_shapes
from py_core.backends.webgpu.weights import WeightArena
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.messages import Message
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.page_table import PageTable
from py_core.paging.sequence_slots import SLOTS
from py_core.paging.tiers import TierPolicy
from py_core.sampling import SamplingParams
from py_core.training.session import Training

_TRIAL = 0.5
"""Of a batch's usual time, what passes with guesses take before anything is known of an answer."""

_MOST_STEPS = 128
_LEAST_STEPS = 4

_SCORED = "scored"

_ONLY_SOFTWARE = Message(
    "gpu.only-software",
    "The connection to the graphics card was lost, and there is only a software adapter, which "
    "is slow, in its place. Load the model again to go on.",
)


async def load_webgpu(
    host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, tuning: TuningStore | None = None,
    shapes: KernelShapes | None = None, tiers: TierPolicy | None = None, settings: Settings = DEFAULTS,
) -> WebGPUBackend:  # fmt: skip
    """Compile the model for the host's adapter and bring its weights there. Raises BackendError, GGUFError, EOFError.

    With `tuning` the shapes of the kernels are measured on a GPU once, and kept there. `shapes` overrides the choice by
    adapter, for tests. tiers: None keeps all pages hot. settings: others than the defaults are for tests, too.
    """
    backend = WebGPUBackend(host, source, header, config, graph, tuning, shapes, tiers, settings)
    await backend.load(progress)
    return backend


class WebGPUBackend(PipelinedBackend):
    """See `Backend` for the contract of each method. Made by `load_webgpu`.

    A device that is lost is replaced: what lived on it is built again, and each sequence's tokens run again.
    """

    BATCH_SECONDS = 0.006  # a browser hears late of a batch's end: many short ones keep the GPU busy
    GUESSES_AHEAD = True
    RESTARTS = (DeviceLostError,)

    def __init__(
        self, host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
        tuning: TuningStore | None, shapes: KernelShapes | None, tiers: TierPolicy | None = None,
        settings: Settings = DEFAULTS,
    ) -> None:  # fmt: skip
        check_formats(header.tensors, graph.weights, LAYOUTS, "GPU")
        context_length = config.context_length
        self._host, self._source, self._config, self._graph = host, source, config, graph
        self._tensors = {name: header.tensors[name] for name in graph.weights}
        self._wanted_shapes, self._tuning, self._tiers, self._settings = shapes, tuning, tiers, settings
        self._trainings: WeakSet[Training] = WeakSet()
        self._guesses = DeviceGuesses()
        self._text_of: TokenSequence | None = None
        """Whose text is on the device: the sequence that is decoded alone."""
        self._shapes: KernelShapes
        super().__init__(self._on_adapter(), context_length, config.vocab_size, self._shapes.max_rows, graph)
        self._hears_together = host.hears_together

    async def load(self, progress: Progress | None) -> None:
        """Build everything that lives on the host's device, and bring the weights there."""
        host, config = self._host, self._config
        self._shapes = replace(self._shapes, halves=await choose_halves(host))
        self.arena = WeightArena(host, self._tensors)
        self._buffers = Buffers(
            state=self._buffer(STATE_HEADER + ROW_BYTES * self._shapes.max_rows, "state"),
            history=self._buffer(SLOTS * RING * 4, "history"),
            logits=self._buffer(MAX_LOGIT_ROWS * config.vocab_size * 4, "logits"),
        )
        builder = KernelBuilder(host, self._shapes)
        pipeline = builder.pipeline if self._tiers else None
        self._pages = KVPages(host, config, self._graph, SLOTS, pipeline, self._settings)
        lowering = PlanLowering(
            host, config, self._graph, self.arena, builder, self._buffers, self._pages, self._settings.logit_bytes
        )
        self._some_rows = lowering.some_rows
        self._plans = {rows: lowering.plan(rows) for rows in lowering.passes}
        self._samplers = {name: lowering.sampler(name) for name in ("argmax", "sample", "penalties")}
        guess = self._guesses.place(host, builder, self._buffers.state, self._buffers.history, config.context_length)
        self._samplers["guess"] = guess
        self._recorded: dict[tuple[str, int, int, int], int] = {}
        self._lowering, self._sets = lowering, AdapterPlans(lowering)
        of_packs = KernelBuilder(host, replace(self._shapes, max_rows=PACK_ROWS))
        self.model = ModelOnDevice(host, config, self._graph, self.arena, lowering.vectors, lowering.angles, of_packs)
        self._made_later: dict[str, list[Kernel]] = {}
        self._changed_heads: dict[str, list[Kernel]] = {}
        self._head_numbers, self._head_kind = np.zeros(0, np.uint32), ""
        self._tap_buffers: dict[str, list[Binding]] = {}
        self._generation = self._pages.generation
        await self.arena.upload(self._source, progress)
        await host.check()
        if self._tuning and self._shapes.lanes > 1:
            await tune(host, builder, self._buffers.state, self._tuning, lowering.measured, self._settings.measure)
            if builder.chosen or builder.chosen_few or builder.chosen_tiles:
                self._plans |= {rows: lowering.plan(rows) for rows in lowering.passes}
                await host.check()  # Kernels that were kept are compiled only now.
            of_packs.usual_tiles = builder.usual_tiles
        for number, adapter in self._adapters.items():
            await self._place_adapter(number, adapter)
        for number, head_adapter in self._head_slots.adapters.items():
            await self._place_head_adapter(number, head_adapter)

    async def _rebuild(self) -> None:
        if self._losses > 1:
            await asyncio.sleep(self._settings.pause)
        await self._host.reopen()
        if self._host.adapter.software and not self.capabilities.software:
            raise DeviceLostError(_ONLY_SOFTWARE)
        self.capabilities = self._on_adapter()
        self.max_rows = self._shapes.max_rows
        await self._source.rewind()
        self._forget_prefixes()
        for sequence in self._sequences.values():
            sequence.stored = 0  # before others wait: whoever is told to stop meanwhile looks for its pages
        await self.load(None)

    def _on_adapter(self) -> Capabilities:
        """Choose what depends on the adapter."""
        adapter = self._host.adapter
        self._shapes = self._wanted_shapes or choose_shapes(adapter, self._config.head_dim)
        if self._tiers:  # the other kernel of attention reads hot pages only
            self._shapes = replace(self._shapes, flash_attention=True)
        return Capabilities("webgpu", adapter.name, adapter.software)

    async def open_training(self, layout: ParameterLayout) -> Training:
        from py_core.backends.webgpu.training import WebGPUTraining  # who only chats does not wait for it
        from py_core.training.backward import training_plan

        if self._config.head_dim % 4:
            raise BackendError(
                "gpu.training-heads",
                "The GPU kernels train models whose attention heads have multiples of 4 "
                "values, and this one's have {size}. Train it on another backend.",
                size=self._config.head_dim,
            )
        training = WebGPUTraining(self, training_plan(self._graph, layout))
        self._trainings.add(training)
        try:
            await self.bring(training.build)
        except BaseException:
            training.close()
            raise
        return training

    async def bring(self, place: Callable[[], Awaitable[None]]) -> None:
        """Bring something to the device, which is replaced where it was lost. Raises DeviceLostError."""
        await self._placed(place, lambda: None)

    def note_loss(self) -> None:
        """The device is gone: whoever needs it next replaces it."""
        self._lost, self._logits_of = True, None

    async def _place_adapter(self, number: int, adapter: LoraAdapter) -> None:
        if number not in self._sets:  # `load` brings back those that were lost
            await self._sets.add(number, adapter, self._plans)
            await self._host.check()

    def remove_adapter(self, number: int) -> None:
        super().remove_adapter(number)
        self._forget_lists(number)
        self._sets.remove(number)

    async def _place_head_adapter(self, number: int, adapter: AnyHeadAdapter) -> None:
        heads = self._lowering.heads
        if heads.write(number, adapter):
            self._forget_lists()
        kind = kind_of([adapter])
        if f"step{kind}" not in self._changed_heads:
            made = heads.changed(kind)
            await self._host.check()
            self._changed_heads |= made

    def close(self) -> None:
        for training in self._trainings:
            training.close()
        self._host.close()

    async def limits(self, on_round: OnRound = lambda: None) -> Limits:
        """What the adapter does at most, measured now. Raises BackendError where the GPU has no timestamps."""
        await self._restore()
        return Limits(await measure_bandwidth(self._host, on_round), await measure_flops(self._host, on_round))

    async def profile(
        self, position: int, rows: int = 1, on_round: OnRound = lambda: None, logit_rows: int = 1
    ) -> Profile:
        """Measure a decode step at `position`, or with more rows a pass of a prefill that begins there, of which the
        last `logit_rows` get logits.

        It runs in a sequence of its own, over arbitrary keys and values; other sequences are not changed.
        Raises ValueError where the context or a pass has no room for it, BackendError where the GPU has no timestamps.
        """
        if not 1 <= rows <= self.max_rows:
            raise ValueError(f"One pass has 1 to {self.max_rows} rows on this GPU, not {rows}.")
        most = self.context_length - rows - _LEAST_STEPS
        if not 0 <= position <= most:
            raise ValueError(f"There is no room to measure at position {position}: it must be 0 to {most}.")
        sequence = self.new_sequence()
        self._put_to_work([sequence])
        try:
            state = state_bytes([(0, position + row, sequence.slot) for row in range(rows)], GREEDY, logit_rows)
            await self._restore()
            self._logits_of = None
            self._write_state(state)
            await self._reserve(sequence.slot, position, position + rows)
            length = position + rows
            await self._lists_of(rows, length, logit_rows)  # which makes the kernels of several rows' logits
            first, then = ("step", "argmax") if rows == 1 else ("body", "heads" if logit_rows > 1 else "head")
            launches = self._launches(first, rows, length) + self._launches(then, logit_rows, length)
            costs, gpu = await measure_kernels(
                self._host, launches, position, rows, lambda: self._write_state(state), on_round
            )
            wall = await self._time_pass(state, position, rows, logit_rows) if rows > 1 else 0.0
            if rows == 1:
                wall = await self._time_steps(sequence, position, gpu)
            return Profile(position, rows, costs, gpu, wall)
        finally:
            self.free(sequence)

    async def _time_pass(self, state: bytes, position: int, rows: int, logit_rows: int) -> float:
        """Seconds of a pass of a prefill, which is waited for."""
        taken = []
        for _ in range(3):
            begin = time.perf_counter()
            self._write_state(state)
            await self._run_rows(rows, position + rows, logit_rows)
            taken.append(time.perf_counter() - begin)
        return median(taken)

    async def _time_steps(self, sequence: TokenSequence, position: int, expected: float) -> float:
        """Seconds of a step as decoding runs them, in batches queued ahead."""
        sequence.tokens, sequence.stored = [0] * (position + 1), position
        self._times.seconds[1] = expected
        steps = max(_LEAST_STEPS, min(_MOST_STEPS, int(1 / expected)))
        begin = time.perf_counter()
        made = sum([len(ids) async for ids in self.decode(sequence, steps, GREEDY)])
        taken = (time.perf_counter() - begin) / made
        sequence.stored = 0  # its pages hold nothing that anybody may begin with
        return taken

    async def _reserve(self, slot: int, first: int, length: int) -> None:
        while True:
            try:
                self._demote(slot, first)
                self._make_room(slot, first, length)
                return await self._pages.reserve(slot, first, length)
            except BackendError:
                if not self._make_room(slot, first, length, most=0):
                    raise

    def _demote(self, slot: int, stored: int) -> None:
        """Bring pages of a sequence of which so much is stored to the tiers that the policy wants."""
        table = self._shared_table
        aged = table.aged(slot, stored, self._tiers) if table and self._tiers else []
        for (page, _), new in zip(aged, self._pages.demote(aged) if aged else [], strict=True):
            self._prefixes.rename(page, new)

    @property
    def _shared_table(self) -> PageTable | None:
        return self._pages.shared_table

    @property
    def _limited_pages(self) -> KVPages:
        return self._pages

    async def _shrink_pool(self, capacity: int) -> dict[int, int]:
        return await self._pages.shrink(capacity)

    def memory(self) -> MemoryUse:
        held, pages = dict(self._host.buffer_bytes()), self._pages
        weights, _ = held.pop(WEIGHTS, 0), held.pop(PAGES, 0)
        adapters = held.pop(LORA_SET, 0) + held.pop(HEAD_ADAPTERS, 0)
        by_tier = {tier.name.lower(): page_bytes(pages.tables(tier), pages.there(tier), tier) for tier in pages.tiers}
        return MemoryUse(weights, adapters, sum(held.values()), by_tier, limit=self._limit)

    @property
    def _layout_name(self) -> str:
        tiers = ", tiers" if self._tiers else ""  # who wants exact pages takes none that were demoted
        return f"webgpu float32, {self._pages.page_bytes}{tiers}"

    async def _read_page(self, page: int) -> bytes:
        return await self._pages.read_page(page)

    async def _write_page(self, page: int, data: bytes) -> None:
        self._pages.write_page(page, data)

    def _release(self, slot: int, length: int) -> None:
        self._pages.release(slot, length)

    def _sees(self, slot: int, position: int) -> bool:
        return self._pages.sees(slot, position)

    def _write_state(self, data: bytes) -> None:
        self._host.write(self._buffers.state.buffer, 0, data)
        self._text_of = None
        # Which kernels run follows from the adapters that the state names.
        self._sets.number = adapter_of(data)
        self._head_numbers = head_adapters_of(data)
        adapters = self._head_slots.adapters
        self._head_kind = kind_of([adapters[one] for one in set(self._head_numbers.tolist()) if one in adapters])

    def _write_history(self, slot: int, ring: np.ndarray) -> None:
        self._host.write(self._buffers.history.buffer, slot * RING * 4, ring.tobytes())

    async def _run_rows(self, m: int, length: int, logit_rows: int) -> None:
        self._host.submit(await self._lists_of(m, length, logit_rows))
        await self._host.read(self._buffers.state.buffer, 0, 4)

    async def _lists_of(self, m: int, length: int, logit_rows: int) -> list[int]:
        """The recorded lists of a pass over m rows, of which the last ones get logits."""
        lists = [self._record("body", m, length)]
        if logit_rows > 1 and not self._head_kind and "heads" not in self._made_later:
            kernels = self._lowering.head()
            await self._host.check()
            self._made_later["heads"] = kernels
        if logit_rows:
            head = ("heads" if logit_rows > 1 else "head") + self._head_kind
            lists.append(self._record(head, logit_rows, length))
        return lists

    async def _run_tapped(self, m: int, length: int, names: Sequence[str]) -> list[np.ndarray]:
        rank = self._sets.rank
        key = f"taps of rank {rank} " + " ".join(names)
        if key not in self._made_later:
            kernels, buffers = self._lowering.tapped(names, rank)
            await self._host.check()
            self._made_later[key], self._tap_buffers[key] = kernels, buffers
        self._host.submit([self._record(key, m, length)])
        buffers = self._tap_buffers[key]
        read = [self._host.read(at.buffer, 0, at.size // self._shapes.max_rows * m) for at in buffers]
        return [np.frombuffer(data, np.float32).reshape(m, -1) for data in await asyncio.gather(*read)]

    async def _run_scored(self, m: int, length: int, targets: Sequence[int]) -> np.ndarray:
        await self._make_scored()
        self._host.submit([self._record("body", m, length)])
        return await self._scored(targets)

    async def _run_head_scored(self, states: np.ndarray, targets: Sequence[int]) -> np.ndarray:
        await self._make_scored()
        place = self._lowering.residual
        self._host.write(place.buffer, place.offset, states.tobytes())
        return await self._scored(targets)

    async def _make_scored(self) -> None:
        if _SCORED not in self._made_later:
            kernels = self._lowering.heads.scored()
            await self._host.check()
            self._made_later[_SCORED] = kernels

    async def _scored(self, targets: Sequence[int]) -> np.ndarray:
        """log p of the targets of the rows whose residual stream is there."""
        heads, m = self._lowering.heads, len(targets)
        for first in range(0, m, heads.chunk):
            rows = [(targets[row], 0, row) for row in range(first, min(first + heads.chunk, m))]
            numbers = self._head_numbers[first : first + len(rows)].tolist()
            self._host.write(heads.targets.buffer, 0, state_bytes(rows, head_adapters=numbers))
            self._host.submit([self._record(_SCORED, len(rows), 1)])
        return np.frombuffer(await self._host.read(heads.scores.buffer, 0, 4 * m), np.float32)

    def _token_seconds(self, sequence: TokenSequence) -> float | None:
        step, lookup = self._times.typical(1), sequence.guesses
        return step / self._guesses.gain(lookup.rehearsal, step) if step and lookup and lookup.rehearsal else step

    async def _submit(
        self, sequences: Sequence[TokenSequence], left: int, sampling: Sequence[SamplingParams], forward_first: bool,
        in_flight: InFlight,
    ) -> Batch | None:  # fmt: skip
        sequence = sequences[0]
        lookup = sequence.guesses
        if lookup is None or len(sequences) > 1:
            return await super()._submit(sequences, left, sampling, forward_first, in_flight)
        guesses, step = self._guesses, self._times.typical(1)
        rehearsal = guesses.rehearsal(lookup)
        guesses.judge(lookup, step)
        room = self.context_length - sequence.length - in_flight.most
        rows = guesses.rows_that_pay(rehearsal, step, min(room, guesses.rows))
        is_new = self._text_of is not sequence
        if is_new and rows > 1:
            rows, left = 1, 1  # the first guesses are made behind the next token
        times = guesses.times if rows > 1 else self._times
        likely = rehearsal.gains[rows] if rows > 1 else 1.0
        # How far guesses go is known only when it is heard: not too many of them are made before.
        wanted = self.BATCH_SECONDS * (1 if rows == 1 or rehearsal.seen else _TRIAL)
        count = min(times.batch(rows, wanted), math.ceil(left / likely), room // rows)
        if count < 1:
            return None
        most = sequence.length + in_flight.most + count * rows
        await self._reserve(sequence.slot, sequence.stored, most)
        if is_new:
            guesses.write_text(lookup.tokens, sequence.length - 1)
            self._text_of = sequence
        forward = await self._lists_of(rows, most, rows) if rows > 1 else [self._record(self._step, 1, most)]
        sample = [self._record(name, rows, most) for name in _samplers(sampling)]
        guess = [self._record("guess", 1, most)]
        # The rows that the kernel has made are there: how many of them the passes take is said here.
        self._host.write(self._buffers.state.buffer, 0, np.array([rows, rows], np.uint32).tobytes())
        guesses.begin_records()
        if rows > 1:
            self._host.submit([*forward, *sample, *guess] * count)
        else:
            first = [*forward, *sample] if forward_first else sample
            self._host.submit([*first, *[*forward, *sample] * (count - 1), *guess])
        future = asyncio.ensure_future(guesses.read(count if rows > 1 else 1))
        await asyncio.sleep(0)  # it is asked for before the next batch writes its records
        run = count if forward_first else count - 1
        return Batch(future, times, rows, run, max(1, int(count * likely)), count * rows)

    async def _start_steps(
        self, places: Sequence[tuple[int, int]], count: int, forward_first: bool, sampling: Sequence[SamplingParams]
    ) -> asyncio.Future[list[list[int]]]:
        m, length = len(places), max(position for _, position in places) + count
        forward = await self._lists_of(m, length, m) if m > 1 else [self._record(self._step, 1, length)]
        sample = [self._record(name, m, length) for name in _samplers(sampling)]
        self._host.submit((forward if forward_first else []) + sample + [*forward, *sample] * (count - 1))
        return asyncio.ensure_future(self._sampled(places, count))

    @property
    def _step(self) -> str:
        """The name of the list of a step of one row."""
        return f"step{self._head_kind}"

    async def _sampled(self, places: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
        rings = await self._host.read(self._buffers.history.buffer, *rings_span(places))
        return sampled_in(rings, places, count)

    async def _read_logits(self, rows: int) -> np.ndarray:
        data = await self._host.read(self._buffers.logits.buffer, 0, rows * self._vocab_size * 4)
        return np.frombuffer(data, np.float32).reshape(rows, -1).copy()

    def _record(self, name: str, m: int, length: int) -> int:
        """The id of a recorded list for m rows of sequences of up to `length` tokens.

        Made on first use and again when the pages have moved.
        """
        if self._generation != self._pages.generation:
            self._forget_lists()
            self._generation = self._pages.generation
        rows, m = self._size_class(name, m)
        key = (name, m, self._length_class(rows, length), self._sets.number)
        if key not in self._recorded:
            launches = self._launches(name, m, length)
            self._sets.bind()
            self._recorded[key] = self._host.record([launch.dispatch() for launch in launches])
        return self._recorded[key]

    def _forget_lists(self, adapter: int | None = None) -> None:
        """Drop what was recorded, with one adapter or all: what it binds has moved."""
        for key in [key for key in self._recorded if adapter in (None, key[-1])]:
            self._host.forget(self._recorded.pop(key))

    def _launches(self, name: str, m: int, length: int) -> list[Launch]:
        """The kernels of a list, as they are recorded for m rows."""
        rows, m = self._size_class(name, m)
        plan, length_class = self._sets.plans(self._plans)[rows], self._length_class(rows, length)
        # The head alone runs after a prefill's pass, whose state may have many rows.
        lists = {"body": plan.body, "head": self._plans["many"].head, "step": plan.step, **self._made_later}
        if name in self._changed_heads:
            lists[name] = [*(plan.body if name.startswith("step") else []), *self._changed_heads[name]]
        kernels = lists.get(name) or [self._samplers[name]]
        return [Launch(kernel, m, length_class) for kernel in kernels if kernel.splits(length_class)]

    def _length_class(self, rows: str, length: int) -> int:
        """Only the attention of few rows depends on how long the sequence is."""
        return length_class_of(length) if self._shapes.flash_attention and rows != "many" else SHORT

    def _size_class(self, name: str, m: int) -> tuple[str, int]:
        """Which plan serves m rows of a list, and m rounded up so that few lists are recorded."""
        for_many = name in self._tap_buffers or name == _SCORED
        if m == 1 and not for_many:
            return "one", 1
        if m <= FEW_ROWS and not for_many:
            return "few", -(-m // self._shapes.batch_tile) * self._shapes.batch_tile
        if m <= self._some_rows and not for_many:
            return "some", min(-(-m // INTEGER_TILE) * INTEGER_TILE, self._shapes.max_rows)
        most = self._lowering.heads.chunk if name == _SCORED else self._shapes.max_rows
        return "many", min(-(-m // 32) * 32, most)

    def _buffer(self, size: int, label: str) -> Binding:
        return Binding(self._host.create_buffer(size, label), 0, size)


def _samplers(sampling: Sequence[SamplingParams]) -> list[str]:
    """The names of the lists that sample rows so."""
    penalties = ["penalties"] if any(rules.penalizes for rules in sampling) else []
    return penalties + sorted({"argmax" if rules.temperature == 0 else "sample" for rules in sampling})
