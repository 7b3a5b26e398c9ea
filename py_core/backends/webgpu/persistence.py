"""Decides whether a model's decode step runs in persistent kernels, and notices if they stop working.

WebGPU does not promise that workgroups run side by side. So the first pauses try: a step must give the same logits as
the step of one dispatch a kernel, several times, and be faster. The result is kept with the shapes that are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from py_core.backend_errors import BackendError
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.lowering.model import Buffers, PlanLowering
from py_core.backends.webgpu.lowering.persistent import Unsuited
from py_core.backends.webgpu.plan import Kernel, Launch, Plan
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.backends.webgpu.shape_tuning import IsWanted, ShapeTuning, Wanted

_TRIALS = 8
"""Steps that must be right."""
_TOLERANCE = 1e-3
"""The most that logits may differ, as a share of the largest."""


class Persistence:
    """The persistent kernels of one model on one device. `tuning` keeps the results."""

    def __init__(
        self, host: Host, lowering: PlanLowering, buffers: Buffers, tuning: ShapeTuning, settings: DeviceSettings
    ) -> None:
        self._host, self._lowering, self._buffers, self._tuning = host, lowering, buffers, tuning
        self._settings = settings
        self._handed: Binding | None = None
        self.plans: dict[str, Plan] = {}
        """The plan of passes over "one" row, if persistent kernels run them."""
        self._name = "persistent: " + " > ".join(dict.fromkeys(kernel.name for kernel in lowering.plan("one").body))

    async def recall(self) -> None:
        """Use persistent kernels if an earlier trial chose them."""
        kept = await self._tuning.kept(self._name)
        if kept and all(kept):
            with suppress(Unsuited, TypeError, ValueError):  # another program may have written to the store
                self._use(*self._lowering.persistent(PersistentShape(*kept)))

    async def try_out(self, slot: int, is_wanted: IsWanted) -> None:
        """Try persistent kernels unless the result is known, and use them if they are faster. The state is overwritten.
        Raises Wanted, DeviceLostError."""
        if await self._tuning.kept(self._name):
            return
        host, state = self._host, self._buffers.state
        usual = self._lowering.plan("one")
        right = [(PersistentShape(0, 0), usual, self._buffers.state)]
        recorded = [self._record(usual.step)]

        def prepare() -> None:
            if is_wanted():
                raise Wanted
            host.write(state.buffer, 0, state_bytes([(0, 8, slot)], GREEDY))

        try:
            prepare()
            expected = await self._logits(recorded[0])
            for shape in self._settings.persistent:
                try:
                    plan, handed = self._lowering.persistent(shape)
                    await host.check()
                except Unsuited:
                    break
                except BackendError:
                    continue  # it needs more than this adapter has
                one = self._record(plan.step)
                recorded.append(one)
                prepare()
                if await self._is_right(one, handed, expected):
                    right.append((shape, plan, handed))
                else:
                    host.forget(recorded.pop())
            seconds: Sequence[float] = [0.0]
            if len(right) > 1:
                seconds = await self._settings.measure(host, recorded, prepare)
        finally:
            for one in recorded:
                host.forget(one)
        shape, plan, handed = right[int(np.argmin(seconds))]
        await self._tuning.keep(self._name, [shape.groups, shape.workgroup])
        if plan is not usual:
            self._use(plan, handed)

    async def gave_up(self) -> bool:
        """True if a workgroup waited in vain since the last call. Persistent kernels are not used again then."""
        if not self._handed:
            return False
        (word,) = np.frombuffer(await self._host.read(self._handed.buffer, self._handed.offset, 4), np.uint32)
        if word:
            await self._tuning.keep(self._name, [0, 0])
        return bool(word)

    def _use(self, plan: Plan, handed: Binding) -> None:
        self.plans, self._handed = {"one": plan}, handed

    def _record(self, kernels: Sequence[Kernel]) -> int:
        return self._host.record([Launch(kernel, 1, SHORT).dispatch() for kernel in kernels if kernel.splits(SHORT)])

    async def _logits(self, recorded: int) -> np.ndarray:
        self._host.submit([recorded])
        place, words = self._buffers.logits, self._lowering.vocab_size
        return np.frombuffer(await self._host.read(place.buffer, place.offset, 4 * words), np.float32)

    async def _is_right(self, recorded: int, handed: Binding, expected: np.ndarray) -> bool:
        most = _TOLERANCE * np.abs(expected).max()
        for _ in range(_TRIALS):
            if not np.abs(await self._logits(recorded) - expected).max() <= most:
                return False
        (word,) = np.frombuffer(await self._host.read(handed.buffer, handed.offset, 4), np.uint32)
        return not word
