"""Decides whether a model's decode step runs in persistent kernels, and notices if they stop working.

WebGPU does not promise that workgroups run side by side. So the first pauses try: a step must give the same logits as
the step of one dispatch a kernel, several times, and be faster. The result is kept with the shapes that are measured.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.sampling_state import GREEDY, state_bytes
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.host import Binding, Host
from py_core.backends.webgpu.kernel_shapes import PersistentShape
from py_core.backends.webgpu.lowering.model import Buffers, PlanLowering
from py_core.backends.webgpu.lowering.persistent import Unsuited
from py_core.backends.webgpu.plan import Launch, Plan
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.backends.webgpu.shape_tuning import IsWanted, ShapeTuning, Wanted

_NONE = PersistentShape(0, 0)
"""The result of a trial without a faster shape."""
_TRIALS = 8
"""Steps that must be right."""
_TOLERANCE = 1e-2
"""The most that logits may differ, as a share of the largest: the same sums in another order differ by up to 1e-3."""


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
        self._usual: dict[str, Plan] = {}
        self._name = ""

    async def choose(self, usual: Plan, slot: int, position: int, is_wanted: IsWanted) -> None:
        """Use persistent kernels if they are faster than the `usual` plan of one row; try them unless that is known.

        A trial runs steps at this position of the slot, which has pages. The state is overwritten. Without a clock on
        the GPU there is no result. Raises Wanted, DeviceLostError.
        """
        self._usual = {"one": usual}
        self._name = "persistent step: " + " > ".join(dict.fromkeys(kernel.name for kernel in usual.body))
        known = await self._known()
        with suppress(Unsuited):
            if known is None:
                await self._try(usual, (0, position, slot), is_wanted)
            elif known != _NONE:
                plan, own = self._lowering.persistent(known)
                await self._host.check()
                self._use(plan, own)

    async def _try(self, usual: Plan, row: tuple[int, int, int], is_wanted: IsWanted) -> None:
        """Raises what `choose` does, and Unsuited."""
        if not self._settings.persistent:
            return
        host, state = self._host, self._buffers.state
        right: dict[PersistentShape, tuple[Plan, tuple[Binding, ...]]] = {_NONE: (usual, ())}
        recorded = [self._record(usual)]

        def prepare() -> None:
            if is_wanted():
                raise Wanted
            host.write(state.buffer, 0, state_bytes([row], GREEDY))

        try:
            prepare()
            expected = await self._logits(recorded[0])
            for shape in self._settings.persistent:
                if is_wanted():
                    raise Wanted
                try:
                    made = self._lowering.persistent(shape)
                    await host.check()
                except DeviceLostError:
                    raise
                except BackendError:
                    continue  # it needs more than this adapter has
                prepare()
                one = self._record(made[0])
                recorded.append(one)
                if await self._is_right(one, made[1][0], expected):
                    right[shape] = made
                else:
                    host.forget(recorded.pop())
            prepare()
            seconds = await self._settings.measure(host, recorded, prepare) if len(right) > 1 else [0.0]
        except DeviceLostError:
            raise
        except BackendError:
            return
        finally:
            for one in recorded:
                host.forget(one)
        fastest = list(right)[int(np.argmin(seconds))]
        await self._keep(fastest)
        if fastest != _NONE:
            self._use(*right[fastest])
        for shape in right.keys() - {fastest}:
            for own in right[shape][1]:
                host.destroy_buffer(own.buffer)

    def fitting(self) -> dict[str, Plan]:
        """Return the plan of passes over "one" row with the present pages, nothing if it is always the usual one."""
        try:
            for plan in self.plans.values():
                for kernel in plan.body:
                    kernel.bindings()
        except Unsuited:
            return self._usual
        return self.plans

    async def gave_up(self) -> bool:
        """True if a workgroup waited in vain. Persistent kernels are not used again then."""
        found = self._handed is not None and await self._flag(self._handed)
        if found:
            await self._keep(_NONE)
        return found

    async def _known(self) -> PersistentShape | None:
        """Return the result of an earlier trial, None if there is none. Another program may have written to the store:
        a damaged result is none."""
        with suppress(TypeError):
            shape = PersistentShape(*await self._tuning.kept(self._name))
            return shape if shape in (_NONE, *self._settings.persistent) else None
        return None

    async def _keep(self, shape: PersistentShape) -> None:
        await self._tuning.keep(self._name, [shape.groups, shape.workgroup])

    def _use(self, plan: Plan, own: tuple[Binding, ...]) -> None:
        self.plans, self._handed = {"one": plan}, own[0]

    def _record(self, plan: Plan) -> int:
        return self._host.record([Launch(kernel, 1, SHORT).dispatch() for kernel in plan.step if kernel.splits(SHORT)])

    async def _logits(self, recorded: int) -> np.ndarray:
        self._host.submit([recorded])
        place, words = self._buffers.logits, self._lowering.vocab_size
        return np.frombuffer(await self._host.read(place.buffer, place.offset, 4 * words), np.float32)

    async def _is_right(self, recorded: int, handed: Binding, expected: np.ndarray) -> bool:
        most = _TOLERANCE * np.abs(expected).max()
        for _ in range(_TRIALS):
            if not np.abs(await self._logits(recorded) - expected).max() <= most:
                return False
        return not await self._flag(handed)

    async def _flag(self, handed: Binding) -> bool:
        """True if a workgroup gave up."""
        return any(await self._host.read(handed.buffer, handed.offset, 4))
