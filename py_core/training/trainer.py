"""Trains a LoRA set: batches, loss, step, schedule. It can stop between any two pieces of work and resume.

The same settings and examples give the same numbers, bit by bit on one backend, no matter how often it was interrupted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import numpy as np

from py_core.adapters.parameters import ParameterLayout
from py_core.messages import Message, UserError
from py_core.training.batches import Batches
from py_core.training.checkpoint import Checkpoint
from py_core.training.packing import TrainingExample, WeightSums, compared_pack, in_groups, packed
from py_core.training.schedule import Schedule
from py_core.training.session import AdamW, Loss, Pack, Training, TrainingLostError, TrainingState

T = TypeVar("T")

MAX_DROPPED = 4
"""The most steps in a row with a gradient that is not finite: by then the rate is a sixteenth."""

MAX_LOSSES = 3
"""How often in a row the device may be lost before a new step is finished."""


class TrainingError(UserError, RuntimeError):
    """The training cannot continue; the message is a sentence for the user that says what to do."""


@dataclass(frozen=True)
class TrainerSettings:
    """divergence: the weight of the KL divergence from the base; the cross-entropy has 1.

    save_every: after this many steps the state is copied to the host. If the device is lost, the steps since then are
    lost. beta1, beta2, decay, clip, elastic: see `AdamW`. `elastic` affects only a training whose start has an anchor
    (`Checkpoint.next_task`).
    """

    schedule: Schedule
    divergence: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.95
    decay: float = 0.0
    clip: float = 1.0
    elastic: float = 0.0
    save_every: int = 8

    def recipe(self, seed: int) -> str:
        """A text that differs whenever the numbers would (checkpoint.Origin)."""
        return json.dumps({**asdict(self), "save_every": None, "seed": seed}, sort_keys=True)


@dataclass(frozen=True)
class StepReport:
    """The report of a step: mean cross-entropy and divergence per token before it, in nats; and the penalty.

    norm: of the gradient, before clipping. tokens: rows that ran; those of a shared prefix count once.
    """

    step: int
    loss: Loss
    norm: float
    rate: float
    tokens: int


class Trainer:
    """One training on one session, from a checkpoint on. Only one of its methods runs at a time.

    on_step gets the report of each step once, except for a step that finished during a cancellation. on_trouble gets a
    sentence for the user if a step was dropped, or the device was lost. on_save is awaited with each checkpoint during
    the training (TrainerSettings.save_every).
    """

    def __init__(
        self, training: Training, batches: Batches, settings: TrainerSettings, start: Checkpoint,
        on_step: Callable[[StepReport], None] = lambda report: None,
        on_trouble: Callable[[Message], None] = lambda said: None,
        on_save: Callable[[Checkpoint], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        self._training, self._batches, self._settings = training, batches, settings
        self._on_step, self._on_trouble, self._on_save = on_step, on_trouble, on_save
        self._base_states: dict[TrainingExample, np.ndarray] = {}
        self._step, self._halvings, self._dropped = start.step, start.halvings, start.dropped
        self._applied, self._reported = start.state.steps, start.step
        self._saved = start
        self._is_lost = True  # nothing was loaded into the session yet

    async def run(self) -> Checkpoint:
        """Train to the schedule's end, and return the last state.

        It may be cancelled at any time; `checkpoint` then tells how far it came, and another call continues from there.
        Raises TrainingError if the numbers are not finite, or the device is lost, too many times in a row.
        """
        return await self._again_after_a_loss(self._train)

    async def _train(self) -> Checkpoint:
        await self._save()
        while self._step < self._settings.schedule.steps:
            await self._train_step()
            if self._step % self._settings.save_every == 0:
                saved = await self._save()
                if self._on_save is not None:
                    await self._on_save(saved)
        return await self._save()

    async def _train_step(self) -> None:
        examples = self._batches(self._step)
        await self._training.clear()  # left by a step that was interrupted
        loss, tokens = Loss(0, 0), 0
        for pack in await self._packs(examples, self._settings.divergence):
            loss += await self._training.accumulate(pack)
            tokens += pack.rows
        settings, rate = self._settings, math.ldexp(self._settings.schedule.at(self._step), -self._halvings)
        rule = AdamW(
            rate, settings.beta1, settings.beta2, decay=settings.decay, clip=settings.clip, elastic=settings.elastic
        )
        if math.isfinite(loss.total) and (result := await self._training.step(rule)).applied:
            self._applied += 1
            self._dropped = 0
            loss = replace(loss, penalty=result.penalty)
            self._report(StepReport(self._step, loss, result.norm, rate, tokens))
        else:
            self._drop()
        self._step += 1

    async def _packs(self, examples: Sequence[TrainingExample], divergence: float) -> list[Pack]:
        """A step's micro-batches. The base's states for an example are computed once, and always in the same way."""
        if divergence:
            for example in examples:
                if example.compared and example not in self._base_states:
                    self._base_states[example] = await self._training.states(compared_pack(example))
        sums, groups = WeightSums.of(examples), in_groups(examples, self._training.max_rows)
        return [packed(group, sums, divergence, self._base_states) for group in groups]

    def _drop(self) -> None:
        """Drop the step: it changed nothing."""
        self._halvings += 1
        self._dropped += 1
        if self._dropped >= MAX_DROPPED:
            self._step += 1
            raise TrainingError(
                "training.no-gradients",
                "Training was stopped: the gradients of {steps} steps in a row were not finite. What was learned "
                "before is kept. Train with a smaller learning rate.",
                steps=self._dropped,
            )
        self._on_trouble(
            Message(
                "training.step-left-out",
                "Step {step} was skipped because its gradient is not finite. The learning rate is halved.",
                step=self._step + 1,
            )
        )

    def _report(self, report: StepReport) -> None:
        if report.step >= self._reported:
            self._reported = report.step + 1
            self._on_step(report)

    async def checkpoint(self) -> Checkpoint:
        """The progress of the training: between two calls of `run`, or after one that was cancelled.

        If the device was lost, it is the state that was saved last.
        """
        if not self._is_lost:
            try:
                await self._save()
            except TrainingLostError:
                self._is_lost = True
        return self._saved

    async def _save(self) -> Checkpoint:
        state = await self._training.save()
        if state.steps > self._applied:
            # The last step was cancelled, but had already finished.
            self._applied, self._step, self._dropped = state.steps, self._step + 1, 0
        if not state.fisher.any():  # most trainings have none: it need not be kept
            state = replace(state, fisher=TrainingState.of(state.parameters).fisher)
        self._saved = Checkpoint(state, self._step, self._halvings, self._dropped)
        return self._saved

    async def add_fisher(self, examples: Sequence[TrainingExample], keep: float) -> Checkpoint:
        """Add the importance of each parameter for the examples: fisher = keep * fisher + (1 - keep) * mean(g^2).

        g is the gradient of one example's mean cross-entropy (the diagonal of the empirical Fisher information, EWC:
        arXiv 1612.00796; as a running mean: arXiv 1801.10112). Returns the new state. Raises TrainingError as `run`.
        If it is cancelled, nothing is added.
        """
        return await self._again_after_a_loss(lambda: self._add_fisher(examples, keep))

    async def _add_fisher(self, examples: Sequence[TrainingExample], keep: float) -> Checkpoint:
        await self._save()
        # Until everything is added, the session's state counts as lost: the saved state is the one before.
        self._is_lost = True
        await self._training.clear()
        await self._training.add_fisher(keep, 0)
        for example in examples:
            for pack in await self._packs([example], divergence=0):
                await self._training.accumulate(pack)
            await self._training.add_fisher(1, (1 - keep) / len(examples))
        self._is_lost = False
        return await self._save()

    async def _again_after_a_loss(self, work: Callable[[], Awaitable[T]]) -> T:
        """If the device is lost, run `work` again from the state that was saved last."""
        losses, furthest = 0, self._step
        while True:
            try:
                if self._is_lost:
                    await self._restore()
                return await work()
            except TrainingLostError as error:
                self._is_lost = True
                losses = losses + 1 if self._step <= furthest else 1
                furthest = max(furthest, self._step)
                if losses >= MAX_LOSSES:
                    raise TrainingError(
                        "training.device-gone",
                        "Training was stopped: the device was lost {losses} times in a row. What was learned up to "
                        "step {step} is kept. Continue later, or on another device.",
                        losses=losses,
                        step=self._saved.step,
                    ) from error
                self._on_trouble(
                    Message(
                        "training.device-back",
                        "The device was lost. Training continues after step {step}.",
                        step=self._saved.step,
                    )
                )

    async def _restore(self) -> None:
        saved = self._saved
        await self._training.restore(saved.state)
        self._step, self._halvings, self._dropped = saved.step, saved.halvings, saved.dropped
        self._applied = saved.state.steps
        self._is_lost = False


def fresh_start(layout: ParameterLayout, seed: int) -> Checkpoint:
    """The start of a training whose matrices were not trained yet."""
    return Checkpoint(TrainingState.of(layout.fresh(seed)))
