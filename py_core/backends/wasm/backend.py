"""The WASM backend: a model's graph as programs of SIMD kernels, on a pool of workers in the page or in wasmtime.

Two precisions: "precise" quantizes activations to 15 bits and gives the tokens of float32; "fast" quantizes them to 8.
"""

from __future__ import annotations

from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import WorkersRestartedError
from py_core.backends.pipelined import PipelinedBackend
from py_core.backends.protocols import Progress
from py_core.backends.wasm.device import WasmDevice
from py_core.backends.wasm.host import KernelHost
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.paging.tiers import TierPolicy
from py_core.training.session import Training, TrainingLostError


async def load_wasm(
    host: KernelHost, source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph,
    progress: Progress | None = None, precision: str = "precise", tiers: TierPolicy | None = None,
) -> WasmBackend:  # fmt: skip
    """Lay the model out in the kernels' memory and bring its weights there. tiers: None keeps all pages hot.

    Raises BackendError, GGUFError, EOFError.
    """
    device = WasmDevice(host, header, config, graph, precision, tiers)
    backend = WasmBackend(device)
    await device.load(source, progress)
    return backend


class WasmBackend(PipelinedBackend):
    """See `Backend` for the contract of each method. Made by `load_wasm`."""

    device: WasmDevice

    def __init__(self, device: WasmDevice) -> None:
        super().__init__(device)
        device.pages.make_way = self.pages.fit

    async def _rebuild(self) -> None:
        """The memory is as it was, except for writes in flight. Writes of an added adapter are never in flight, since
        the call that places it waits until they are done."""
        self.device.pages.write_tables()

    async def open_training(self, layout: ParameterLayout) -> Training:
        from py_core.backends.wasm.training import open_wasm_training  # a chat does not wait for this import
        from py_core.training.plan import training_plan

        plan, device, recovery = training_plan(self.graph, layout), self.device, self.recovery
        recovery.losses = 0
        while True:
            try:
                await recovery.restore()  # pages make way, so their tables must exist
                return await open_wasm_training(device.host, device.config, plan, device.lowering, device.pages)
            except (WorkersRestartedError, TrainingLostError) as error:
                recovery.note(error)
