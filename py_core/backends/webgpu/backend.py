"""The WebGPU backend: it replaces a device that is lost, trains, and measures its kernels."""

from __future__ import annotations

import time
from statistics import median
from weakref import WeakSet

from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import BackendError
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.profiles import AdapterLimits, OnRound, Profile
from py_core.backends.protocols import Progress
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.backends.webgpu.device import WebGPUDevice
from py_core.backends.webgpu.guessing_decoder import GuessingDecoder
from py_core.backends.webgpu.host import Host
from py_core.backends.webgpu.kernel_shapes import KernelShapes
from py_core.backends.webgpu.profiling import measure_bandwidth, measure_flops, measure_kernels
from py_core.backends.webgpu.settings import DEFAULTS, DeviceSettings
from py_core.backends.webgpu.shape_tuning import IsWanted, TuningStore, Wanted
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.tiers import TierPolicy
from py_core.token_sequence import TokenSequence
from py_core.training.session import Training

_MOST_STEPS = 128
_LEAST_STEPS = 4


async def load_webgpu(
    host: Host, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, tuning: TuningStore | None = None,
    shapes: KernelShapes | None = None, tiers: TierPolicy | None = None, settings: DeviceSettings = DEFAULTS,
) -> WebGPUBackend:  # fmt: skip
    """Compile the model for the host's adapter and bring its weights there. Raises BackendError, GGUFError, EOFError.

    tuning: keeps the shapes of kernels that `tune` measures; None: the usual ones stay. `shapes` overrides the choice
    by adapter, for tests. tiers: None keeps all pages hot. settings: other values than the defaults are for tests, too.
    """
    device = WebGPUDevice(host, source, header, config, graph, tuning, shapes, tiers, settings)
    await device.load(progress)
    return WebGPUBackend(device)


class WebGPUBackend(PipelinedBackend):
    """See `Backend` for the contract of each method. Made by `load_webgpu`.

    A lost device is replaced: its contents are built again, and each sequence's tokens run again.
    """

    device: WebGPUDevice

    def __init__(self, device: WebGPUDevice) -> None:
        super().__init__(device, GuessingDecoder)
        self._trainings: WeakSet[Training] = WeakSet()

    async def _rebuild(self) -> None:
        device = self.device
        await device.reopen(at_once=self.recovery.losses <= 1)
        self.pages.forget()
        await device.load(None)
        self.pages.place(device.pages)
        for number, adapter in self.adapters.sets.items():
            await device.place_adapter(number, adapter)
        for number, head_adapter in self.adapters.heads.items():
            await device.place_head_adapter(number, head_adapter)

    async def open_training(self, layout: ParameterLayout) -> Training:
        from py_core.backends.webgpu.training.session import WebGPUTraining  # a chat does not wait for this import
        from py_core.training.plan import training_plan

        if self.device.config.head_dim % 4:
            raise BackendError(
                "gpu.training-heads",
                "The GPU kernels train a model only if its attention heads have a multiple of 4 values; this "
                "model's have {size}. Train it on another backend.",
                size=self.device.config.head_dim,
            )
        training = WebGPUTraining(self.device, self.recovery, training_plan(self.graph, layout))
        self._trainings.add(training)
        try:
            await self.recovery.placed(training.build)
        except BaseException:
            training.close()
            raise
        return training

    def remove_adapter(self, number: int) -> None:
        super().remove_adapter(number)
        self.device.remove_adapter(number)

    def remove_head_adapter(self, number: int) -> None:
        super().remove_head_adapter(number)
        self.device.remove_head_adapter(number)

    def close(self) -> None:
        for training in self._trainings:
            training.close()
        super().close()

    async def tune(self, is_wanted: IsWanted) -> bool:
        device, pages, sequence = self.device, self.pages, self.new_sequence()
        pages.put_to_work([sequence])
        try:
            await self.recovery.restore()
            pages.logits_of = None
            await pages.reserve(sequence.slot, 0, device.tuned_tokens)
            await device.tune(sequence.slot, is_wanted)
            return True
        except Wanted:
            return False
        finally:
            self.free(sequence)

    async def limits(self, on_round: OnRound = lambda: None) -> AdapterLimits:
        """Measure the peak rates of the adapter. Raises BackendError if the GPU has no timestamps."""
        await self.recovery.restore()
        host = self.device.host
        return AdapterLimits(await measure_bandwidth(host, on_round), await measure_flops(host, on_round))

    async def profile(
        self, position: int, rows: int = 1, on_round: OnRound = lambda: None, logit_rows: int = 1
    ) -> Profile:
        """Measure a decode step at `position`, or with more rows a pass of a prefill that begins there, of which the
        last `logit_rows` get logits.

        It runs in a sequence of its own, over arbitrary keys and values; other sequences are not changed. Raises
        ValueError if the context or a pass has no room for it, BackendError if the GPU has no timestamps.
        """
        if not 1 <= rows <= self.max_rows:
            raise ValueError(f"One pass has 1 to {self.max_rows} rows on this GPU, not {rows}.")
        most = self.context_length - rows - _LEAST_STEPS
        if not 0 <= position <= most:
            raise ValueError(f"There is no room to measure at position {position}: it must be 0 to {most}.")
        device, pages, sequence = self.device, self.pages, self.new_sequence()
        pages.put_to_work([sequence])
        try:
            state = state_bytes([(0, position + row, sequence.slot) for row in range(rows)], GREEDY, logit_rows)
            await self.recovery.restore()
            pages.logits_of = None
            device.write_state(state)
            await pages.reserve(sequence.slot, position, position + rows)
            length = position + rows
            await device.lists_of(rows, length, logit_rows)  # compiles the kernels of several rows' logits
            first, then = ("step", "argmax") if rows == 1 else ("body", "heads" if logit_rows > 1 else "head")
            launches = device.launches(first, rows, length) + device.launches(then, logit_rows, length)
            costs, gpu = await measure_kernels(
                device.host, launches, position, rows, lambda: device.write_state(state), on_round
            )
            wall = await self._time_pass(state, position, rows, logit_rows) if rows > 1 else 0.0
            if rows == 1:
                wall = await self._time_steps(sequence, position, gpu)
            return Profile(position, rows, costs, gpu, wall)
        finally:
            self.free(sequence)

    async def _time_pass(self, state: bytes, position: int, rows: int, logit_rows: int) -> float:
        """Return the seconds of a pass of a prefill that is awaited."""
        taken = []
        for _ in range(3):
            begin = time.perf_counter()
            self.device.write_state(state)
            await self.device.run_rows(rows, position + rows, logit_rows)
            taken.append(time.perf_counter() - begin)
        return median(taken)

    async def _time_steps(self, sequence: TokenSequence, position: int, expected: float) -> float:
        """Return the seconds of a step as decoding runs them, in batches queued ahead."""
        sequence.tokens, sequence.stored = [0] * (position + 1), position
        self.decoder.times.seconds[1] = expected
        steps = max(_LEAST_STEPS, min(_MOST_STEPS, int(1 / expected)))
        begin = time.perf_counter()
        made = sum([len(ids) async for ids in self.decode(sequence, steps, GREEDY)])
        taken = (time.perf_counter() - begin) / made
        sequence.stored = 0  # no other sequence may begin with its pages, which hold nothing
        return taken
