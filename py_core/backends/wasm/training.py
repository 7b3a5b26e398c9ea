"""Training in the kernels' memory: runs the programs of a pack's pass, one after the other."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from py_core.backend_errors import WorkersRestartedError
from py_core.backends.sampling_state import state_bytes
from py_core.backends.wasm.host import KernelHost
from py_core.backends.wasm.kv_pages import KVPages
from py_core.backends.wasm.lowering import ProgramLowering
from py_core.backends.wasm.training_layout import PACK_BYTES
from py_core.backends.wasm.training_lowering import AnchorPlace, TrainingLowering
from py_core.models.config import ModelConfig
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

MAX_ROWS = 512

_LOSS_ROW = np.dtype([("row", "<u4"), ("target", "<u4"), ("weight", "<f4"), ("kl_weight", "<f4")])


class SessionMemory:
    """The memory between the pages that a session takes."""

    def __init__(self, pages: KVPages) -> None:
        self._pages = pages
        self._taken: list[tuple[int, int]] = []

    async def take(self, nbytes: int) -> int:
        """Return the address of `nbytes` bytes. Raises BackendError when memory is out."""
        self._taken.append((await self._pages.take(nbytes), nbytes))
        return self._taken[-1][0]

    def close(self) -> None:
        for address, nbytes in self._taken:
            self._pages.give_back(address, nbytes)
        self._taken.clear()


class WasmTraining:
    """See `Training` for the contract of each method. Made by `open_wasm_training`."""

    max_rows = MAX_ROWS

    def __init__(
        self, host: KernelHost, config: ModelConfig, plan: TrainingPlan, lowering: TrainingLowering,
        memory: SessionMemory,
    ) -> None:  # fmt: skip
        self._host, self._config, self._lowering, self._memory = host, config, lowering, memory
        self._size, self._width = plan.layout.size, plan.loss.h.width
        self._steps = 0
        self._lost = False
        self._anchor: np.ndarray | None = None
        self._place: AnchorPlace | None = None

    async def restore(self, state: TrainingState) -> None:
        self._lost = False
        low = self._lowering
        self._anchor = None
        if state.anchor is not None:
            if self._place is None:
                nbytes = low.anchor_place(0).end
                self._place = low.anchor_place(await self._memory.take(nbytes))
            self._anchor = np.array(state.anchor, np.float32)
            self._host.write(self._place.anchor, self._anchor.tobytes())
        for address, data in low.arena.writes:
            self._host.write(address, data)
        for address, vector in zip(self._vectors, state.vectors, strict=True):
            self._host.write(address, np.ascontiguousarray(vector, np.float32).tobytes())
        self._steps = state.steps
        await self.clear()

    async def save(self) -> TrainingState:
        parameters, first, second, fisher = [await self._floats(address, self._size) for address in self._vectors]
        anchor = None if self._anchor is None else self._anchor.copy()
        return TrainingState(parameters, first, second, fisher, self._steps, anchor)

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        self._write_pack(pack)
        low = self._lowering
        loss = low.loss[pack.base_states is not None]
        await self._run([*low.forward, *loss, *low.backward], after_piece)
        losses = await self._floats(low.losses, 2 * len(pack.loss_rows))
        cross_entropy, divergence = losses.reshape(-1, 2).sum(axis=0, dtype=float)
        return Loss(float(cross_entropy), float(divergence))

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        self._write_pack(pack)
        await self._run(self._lowering.forward_base, after_piece)
        count = len(pack.loss_rows)
        return (await self._floats(self._lowering.states, count * self._width)).reshape(count, self._width)

    async def step(self, rule: AdamW) -> StepResult:
        self._check()
        low, steps = self._lowering, self._steps + 1
        corrections = (1 / (1 - rule.beta1**steps), 1 / (1 - rule.beta2**steps))
        betas = (rule.beta1, 1 - rule.beta1, rule.beta2, 1 - rule.beta2)
        self._host.write(
            low.rule, struct.pack("<10f", rule.rate, *betas, rule.eps, rule.decay, rule.clip, *corrections)
        )
        penalty = 0.0
        if rule.elastic and self._anchor is not None and (place := self._place):
            self._host.write(place.step, low.pulled_step(place, rule.elastic))
            await self._run([place.step])
            sums = np.frombuffer(await self._read(place.sums, 8 * place.parts), np.float64)
            penalty = 0.5 * rule.elastic * float(sums.sum())
        else:
            await self._run([low.step])
        norm, applied = struct.unpack("<dI", await self._read(low.result, 12))
        self._steps += applied
        return StepResult(norm, bool(applied), penalty)

    async def clear(self) -> None:
        await self._run([self._lowering.clear])

    async def add_fisher(self, keep: float, weight: float) -> None:
        self._check()
        self._host.write(self._lowering.add_fisher, self._lowering.fisher_program(keep, weight))
        await self._run([self._lowering.add_fisher])

    async def gradient(self) -> np.ndarray:
        return await self._floats(self._lowering.gradient, self._size)

    def close(self) -> None:
        self._memory.close()

    @property
    def _vectors(self) -> tuple[int, int, int, int]:
        low = self._lowering
        return low.parameters, low.first_moment, low.second_moment, low.fisher

    def _write_pack(self, pack: Pack) -> None:
        self._check()
        check_pack(pack, self._config.vocab_size, self._config.context_length, self.max_rows)
        low = self._lowering
        rows = np.stack([pack.tokens, pack.positions, np.zeros(pack.rows, np.int32)], axis=1)
        self._host.write(low.state, state_bytes(rows.tolist(), logit_rows=0))
        lists = np.zeros((2, low.room), np.int32)
        lists[:, : pack.rows] = pack.starts, pack.positions
        header = struct.pack("<3I", pack.rows, pack.prefix, len(pack.loss_rows)).ljust(PACK_BYTES, b"\0")
        self._host.write(low.pack, header + lists.tobytes())
        loss = np.zeros(len(pack.loss_rows), _LOSS_ROW)
        for name, numbers in (
            ("row", pack.loss_rows), ("target", pack.targets), ("weight", pack.weights), ("kl_weight", pack.kl_weights)
        ):  # fmt: skip
            loss[name] = numbers
        self._host.write(low.loss_rows, loss.tobytes())
        if pack.base_states is not None:
            self._host.write(low.base_states, np.ascontiguousarray(pack.base_states, np.float32).tobytes())

    async def _run(self, programs: Sequence[int], after_piece: AfterPiece | None = None) -> None:
        self._check()
        for program in programs:
            try:
                await self._host.run(program, 1)
            except WorkersRestartedError as error:
                raise self._note_loss() from error
            if after_piece:
                await after_piece()

    async def _floats(self, address: int, count: int) -> np.ndarray:
        return np.frombuffer(await self._read(address, 4 * count), np.float32).copy()

    async def _read(self, address: int, nbytes: int) -> bytes:
        self._check()
        try:
            return await self._host.read(address, nbytes)
        except WorkersRestartedError as error:
            raise self._note_loss() from error

    def _check(self) -> None:
        if self._lost:
            raise _lost()

    def _note_loss(self) -> TrainingLostError:
        self._lost = True
        return _lost()


async def open_wasm_training(
    host: KernelHost, config: ModelConfig, plan: TrainingPlan, model: ProgramLowering, pages: KVPages
) -> WasmTraining:
    """Open a session whose pairs are zeros, in memory between the pages. Raises BackendError when memory is out."""

    def lowered(base: int) -> TrainingLowering:
        return TrainingLowering(plan, model, base, host.most_workers, MAX_ROWS, config.vocab_size)

    memory = SessionMemory(pages)
    base = await memory.take(lowered(0).arena.end)
    training = WasmTraining(host, config, plan, lowered(base), memory)
    try:
        await training.restore(TrainingState.of(np.zeros(plan.layout.size, np.float32)))
    except BaseException:
        training.close()
        raise
    return training


def _lost() -> TrainingLostError:
    return TrainingLostError(
        "wasm.training-lost",
        "The CPU workers were restarted in the middle of a training. Restore its last step.",
    )
