"""Training on a GPU: the session of `training/session.py`. Its passes are lists of dispatches recorded once.

A pass goes to the GPU in pieces of some milliseconds, a few at a time, so that a chat in between gets its answers. A
session's data lives in buffers of its own, and is lost with the device.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.recovery import Recovery
from py_core.backends.webgpu.device import WebGPUDevice
from py_core.backends.webgpu.model_on_device import PACK_ROWS
from py_core.backends.webgpu.plan import Launch
from py_core.backends.webgpu.training.device import Section, SessionOnDevice
from py_core.backends.webgpu.training.loss import SUMS_BYTES, loss_of
from py_core.backends.webgpu.training.optimizer import STEP_BYTES
from py_core.messages import Message
from py_core.training.plan import TrainingPlan
from py_core.training.session import (
    AdamW,
    AfterPiece,
    Loss,
    Pack,
    StepResult,
    TrainingLostError,
    TrainingState,
    check_pack,
)

_PIECE_SECONDS = 0.004
_PIECES_AHEAD = 3
"""Pieces in flight: a browser takes 2 ms to report the end of a piece. Meanwhile the next ones are encoded."""
_KEPT = 0.8
"""The share of the known GPU speed that each new piece leaves. The ends of several pieces are often heard at once, so a
single time says nothing."""

_LOST = Message(
    "gpu.training-lost",
    "The connection to the graphics card was lost in the middle of a training. It continues from the last saved step.",
)


class WebGPUTraining:
    """See `Training` for the contract of each method. `restore` or `build` must come first."""

    max_rows = PACK_ROWS

    def __init__(self, device: WebGPUDevice, recovery: Recovery, plan: TrainingPlan) -> None:
        self._device, self._recovery, self._plan = device, recovery, plan
        self._on: SessionOnDevice | None = None
        self._steps = 0
        self._anchor: np.ndarray | None = None
        self._flops = self._seconds = 0.0
        """Operations and seconds of the last pieces, the newest counting most."""

    async def build(self) -> None:
        """Make what the session needs on the device, if it is not there yet."""
        if self._on is None or self._on.model is not self._device.model:
            self._on = SessionOnDevice(self._device.model, self._plan)
            await self._on.host.check()

    async def restore(self, state: TrainingState) -> None:
        async def write() -> None:
            await self.build()
            on = self._ready()
            # The kernel multiplies these values, which may be NaN.
            on.optimizer.submit_fisher(1, 0)
            for place, vector in zip(on.vectors.kept, state.vectors, strict=True):
                on.host.write(place.buffer, 0, np.ascontiguousarray(vector, np.float32).tobytes())
            if anchor is not None:
                on.host.write(on.optimizer.take_anchor().buffer, 0, anchor.tobytes())
                await on.host.check()

        anchor = None if state.anchor is None else np.array(state.anchor, np.float32)
        try:
            await self._recovery.placed(write)
        except DeviceLostError as error:
            raise TrainingLostError(_LOST) from error
        self._steps, self._anchor = state.steps, anchor

    async def save(self) -> TrainingState:
        with self._telling_loss() as on:
            read = await asyncio.gather(*(on.host.read(place.buffer, 0, place.size) for place in on.vectors.kept))
        parameters, first, second, fisher = (np.frombuffer(data, np.float32).copy() for data in read)
        anchor = None if self._anchor is None else self._anchor.copy()
        return TrainingState(parameters, first, second, fisher, self._steps, anchor)

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        self._check(pack)
        loss = "loss" if pack.base_states is None else "loss and divergence"
        with self._telling_loss() as on:
            await self._run(on, pack, ("forward", loss, "back"), after_piece)
            sums = await on.host.read(on.loss.sums.buffer, 0, SUMS_BYTES * max(len(pack.loss_rows), 1))
        return loss_of(pack, sums)

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        self._check(pack)
        count, width = len(pack.loss_rows), self._plan.loss.h.width
        with self._telling_loss() as on:
            await self._run(on, pack, ("base",), after_piece)
            data = await on.host.read(on.loss.states.buffer, 0, 4 * width * max(count, 1))
        return np.frombuffer(data, np.float32).reshape(-1, width)[:count].copy()

    async def step(self, rule: AdamW) -> StepResult:
        with self._telling_loss() as on:
            pulled = on.optimizer.pulled if rule.elastic and self._anchor is not None else None
            on.optimizer.submit_step(rule, self._steps + 1, pulled is not None)
            reads = [on.host.read(on.optimizer.step.buffer, 0, STEP_BYTES)]
            if pulled:
                reads.append(on.host.read(pulled.buffer, 0, pulled.size))
            data, *sums = await asyncio.gather(*reads)
        applied = bool(np.frombuffer(data, np.uint32)[2])
        self._steps += applied
        penalty = 0.5 * rule.elastic * sum(float(np.frombuffer(parts, np.float32).sum(dtype=float)) for parts in sums)
        return StepResult(float(np.frombuffer(data, np.float32)[0]), applied, penalty)

    async def clear(self) -> None:
        with self._telling_loss() as on:
            on.optimizer.submit_fisher(1, 0)

    async def add_fisher(self, keep: float, weight: float) -> None:
        with self._telling_loss() as on:
            on.optimizer.submit_fisher(keep, weight)

    async def gradient(self) -> np.ndarray:
        with self._telling_loss() as on:
            data = await on.host.read(on.vectors.gradient.buffer, 0, on.vectors.gradient.size)
        return np.frombuffer(data, np.float32).copy()

    def launches(self) -> dict[str, list[Launch]]:
        """Return the kernels of a pass over the most rows, by its parts, for measurements."""
        return self._ready().launches()

    def close(self) -> None:
        on, self._on = self._on, None
        if on is not None and on.model is self._device.model:
            with suppress(BackendError):  # the device may be lost
                on.destroy()

    def _check(self, pack: Pack) -> None:
        config = self._device.model.config
        check_pack(pack, config.vocab_size, config.context_length, self.max_rows)

    def _ready(self) -> SessionOnDevice:
        """Return the session's part of the device. Raises TrainingLostError if the device is another one now."""
        if self._on is None or self._on.model is not self._device.model:
            raise TrainingLostError(_LOST)
        return self._on

    @contextmanager
    def _telling_loss(self) -> Iterator[SessionOnDevice]:
        try:
            yield self._ready()
        except DeviceLostError as error:
            self._recovery.mark()
            self._on = None
            raise TrainingLostError(_LOST) from error

    async def _run(self, on: SessionOnDevice, pack: Pack, parts: Sequence[str], after_piece: AfterPiece | None) -> None:
        """Run parts of a pass, piece by piece. The last pieces may still be in flight at the end."""
        on.write(pack)
        rest = deque(section for part in parts for section in on.sections(part, pack.rows))
        ahead: deque[tuple[float, asyncio.Future[bytes]]] = deque()
        heard = time.perf_counter()
        while rest:
            recorded, work = self._piece(rest, pack.rows)
            on.host.submit(recorded)
            done = asyncio.ensure_future(on.host.read(on.optimizer.step.buffer, 0, STEP_BYTES))
            done.add_done_callback(lambda late: late.cancelled() or late.exception())
            ahead.append((work, done))
            if len(ahead) >= _PIECES_AHEAD:
                first_work, first_done = ahead.popleft()
                await first_done
                now = time.perf_counter()
                self._flops = _KEPT * self._flops + first_work
                self._seconds = _KEPT * self._seconds + now - heard
                heard = now
            if after_piece:
                await after_piece()
                self._ready()

    def _piece(self, rest: deque[Section], rows: int) -> tuple[list[int], float]:
        """Return the next lists to submit together, and their FLOPs."""
        most = _PIECE_SECONDS * self._flops / self._seconds if self._seconds else 0.0
        recorded, work = list[int](), 0.0
        while rest and (not recorded or work + rest[0].work(rows) <= most):
            section = rest.popleft()
            recorded.append(section.recorded)
            work += section.work(rows)
        return recorded, work
