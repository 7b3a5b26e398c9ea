"""All that a training session has on one device: buffers, the kernels of a pass, and their recorded lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.backend_errors import BackendError
from py_core.backends.sampling_state import ROW_BYTES, STATE_HEADER, state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import Binding
from py_core.backends.webgpu.model_on_device import ModelOnDevice
from py_core.backends.webgpu.plan import Kernel, Launch
from py_core.backends.webgpu.training.linears import TrainingLinears
from py_core.backends.webgpu.training.loss import LossLowering
from py_core.backends.webgpu.training.lowering import PackBuffers, TrainingLowering
from py_core.backends.webgpu.training.optimizer import Optimizer, OptimizerVectors
from py_core.backends.webgpu.training.values import TrainingValues, backward_steps, forward_steps
from py_core.training.gradient_ops import HeadLoss, LoraDown, LoraUp
from py_core.training.plan import TrainingPlan
from py_core.training.session import Pack

_LIST_FLOPS = 1e9
"""The operations of a recorded list, over the most rows: the least that is submitted at a time."""
_KERNEL_FLOPS = 5e7
"""The operations that a kernel counts in addition to its own."""

_FEWEST_ROWS = 64
"""The fewest rows for which lists are recorded. Workgroups of rows that a pack does not have end at once."""

_PACK_HEADER = 16
_PACK_ROW = 16


@dataclass(frozen=True)
class Section:
    """A recorded list and its cost: FLOPs for each row of a pack, and FLOPs for any pack."""

    recorded: int
    row_flops: float
    flops: float

    def work(self, rows: int) -> float:
        return self.row_flops * rows + self.flops


class SessionOnDevice:
    """A session's part of one device. `destroy` gives it back."""

    def __init__(self, model: ModelOnDevice, plan: TrainingPlan) -> None:
        self.model, self.host = model, model.host
        self._made: list[int] = []
        nbytes = 4 * plan.layout.size
        if nbytes > self.host.adapter.max_binding_size:
            raise BackendError(
                "gpu.training-too-large",
                "The trained matrices take {size} MiB, more than this GPU can bind ({most} MiB). Choose a "
                "smaller rank, or fewer linears.",
                size=nbytes >> 20,
                most=self.host.adapter.max_binding_size >> 20,
            )
        try:
            self._build(plan, nbytes)
        except BaseException:
            self.destroy()
            raise

    def _build(self, plan: TrainingPlan, nbytes: int) -> None:
        model, builder = self.model, self.model.builder
        rows = builder.shapes.max_rows
        names = ("parameters", "first_moment", "second_moment", "fisher", "gradient")
        self.vectors = OptimizerVectors(*(self._make(nbytes, f"training's {name}") for name in names))
        self.buffers = PackBuffers(
            self._make(STATE_HEADER + ROW_BYTES * rows, "training's state"),
            self._make(_PACK_HEADER + _PACK_ROW * rows, "pack"),
            self.vectors.parameters,
            self.vectors.gradient,
        )
        values = TrainingValues(plan, rows, self._make)
        lowering = TrainingLowering(model, plan.layout, values, self.buffers)
        matrix, _ = model.arena.find(plan.loss.weight)
        linears = TrainingLinears(model.arena, model.vectors, model.graph, builder, values)
        self.loss = LossLowering(plan.loss, matrix, linears, builder, self._make, self.buffers.pack)
        self.optimizer = Optimizer(self.host, builder, self.vectors, self._make)
        forward = list(lowering.part(forward_steps(plan)))
        base = [k for step, kernels in forward if not isinstance(step.op, LoraDown | LoraUp) for k in kernels]
        gather, dh = self.loss.gather(values.of(plan.loss.h)), values.of(plan.loss.dh)
        back = [step for step in backward_steps(plan) if not isinstance(step.op, HeadLoss)]
        self._kernels = {
            "forward": [kernel for _, kernels in forward for kernel in kernels] + gather,
            "base": base + gather,
            "loss": self.loss.kernels(dh, divergence=False),
            "loss and divergence": self.loss.kernels(dh, divergence=True),
            "back": [kernel for _, kernels in lowering.part(back) for kernel in kernels],
        }
        self._sections: dict[tuple[str, int], list[Section]] = {}

    def sections(self, name: str, rows: int) -> list[Section]:
        """Return the lists of a part of a pass over `rows` rows, recorded for at most twice as many rows."""
        most = _FEWEST_ROWS
        while most < rows:
            most *= 2
        key = name, min(most, self.model.builder.shapes.max_rows)
        if key not in self._sections:
            self._sections[key] = [self._section(kernels, key[1]) for kernels in self._cut(self._kernels[name])]
        return self._sections[key]

    def launches(self) -> dict[str, list[Launch]]:
        """Return the kernels of each part of a pass over the most rows, in order."""
        rows = self.model.builder.shapes.max_rows
        return {name: [Launch(kernel, rows, SHORT) for kernel in kernels] for name, kernels in self._kernels.items()}

    def write(self, pack: Pack) -> None:
        """Bring a pack to the GPU."""
        rows = zip(pack.tokens.tolist(), pack.positions.tolist(), [0] * pack.rows, strict=True)
        self.host.write(self.buffers.state.buffer, 0, state_bytes(list(rows)))
        header = np.array([pack.rows, pack.prefix, len(pack.loss_rows), 0], np.uint32)
        table = np.zeros((pack.rows, _PACK_ROW // 4), np.uint32)
        table[:, 0], table[:, 1] = pack.starts, pack.positions
        table[pack.loss_rows, 2] = 1 + np.arange(len(pack.loss_rows))
        self.host.write(self.buffers.pack.buffer, 0, header.tobytes() + table.tobytes())
        for place, data in self.loss.writes(pack):
            self.host.write(place.buffer, 0, data)

    def destroy(self) -> None:
        for sections in getattr(self, "_sections", {}).values():
            for section in sections:
                self.host.forget(section.recorded)
        if optimizer := getattr(self, "optimizer", None):
            optimizer.forget()
        for buffer in self._made:
            self.host.destroy_buffer(buffer)
        self._made.clear()

    def _cut(self, kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
        rows, found, flops = self.model.builder.shapes.max_rows, list[Kernel](), 0.0
        for kernel in kernels:
            found.append(kernel)
            flops += kernel.cost.row_flops * rows + _KERNEL_FLOPS
            if flops >= _LIST_FLOPS:
                yield found
                found, flops = [], 0.0
        if found:
            yield found

    def _section(self, kernels: Sequence[Kernel], rows: int) -> Section:
        recorded = self.host.record([Launch(kernel, rows, SHORT).dispatch() for kernel in kernels])
        return Section(recorded, sum(kernel.cost.row_flops for kernel in kernels), _KERNEL_FLOPS * len(kernels))

    def _make(self, nbytes: int, label: str) -> Binding:
        self._made.append(self.host.create_buffer(nbytes, label))
        return Binding(self._made[-1], 0, nbytes)
