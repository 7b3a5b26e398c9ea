"""The interface between the trainer and a backend that computes gradients: the same for numpy, WebGPU and WASM.

A backend runs `plan.py`'s plan over packs of tokens. Parameters, gradients and the optimizer's moments stay on the
model's device, each as one vector in the order of the plan's ParameterLayout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from py_core.backend_errors import BackendError

AfterPiece = Callable[[], Awaitable[None]]
"""Awaited after each piece of a long call: meanwhile the backend may serve others."""


class TrainingLostError(BackendError):
    """The device or its workers were lost during a call, and with them the session's state.

    `Training.restore` restores it from a saved state.
    """


@dataclass(frozen=True, eq=False)
class Pack:
    """Sequences of tokens in one pass, behind a shared prefix: rows 0 .. prefix - 1, then one sequence after the other.

    tokens, positions: int32 (M,). A sequence's positions begin at the end of the prefix.
    starts: int32 (M,), the first row of each row's own sequence, 0 for rows of the prefix. Row i sees the rows of the
    prefix up to itself, and rows starts[i] .. i.
    loss_rows: int32 (L,), the rows that have a loss, in order, each once.
    targets: int32 (L,), the token that should follow each of these rows.
    weights, kl_weights: float32 (L,), of the cross-entropy and of the KL divergence from the base's own probabilities.
    base_states: float32 (L, hidden_size), the input of the output matrix if the base runs alone (`Training.states`);
    None if no row has a kl_weight.
    """

    tokens: np.ndarray
    positions: np.ndarray
    prefix: int
    starts: np.ndarray
    loss_rows: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    kl_weights: np.ndarray
    base_states: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Loss:
    """Sums over a pack's rows, each times its weight, in nats. penalty: of a whole step (`StepResult.penalty`)."""

    cross_entropy: float
    divergence: float
    penalty: float = 0.0

    @property
    def total(self) -> float:
        return self.cross_entropy + self.divergence + self.penalty

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            self.cross_entropy + other.cross_entropy, self.divergence + other.divergence, self.penalty + other.penalty
        )


@dataclass(frozen=True)
class AdamW:
    """One step of the optimizer (arXiv 1711.05101): decay is decoupled, p -= rate * (m / (sqrt(v) + eps) + decay * p).

    If the state has an anchor, elastic * fisher * (p - anchor) is added to the gradient first: the gradient of a
    penalty of elastic / 2 * sum(fisher * (p - anchor)^2) (elastic weight consolidation, arXiv 1612.00796). Then the
    gradient is scaled down to a norm of `clip` if it is longer; 0 turns that off. Moments are corrected for their start
    from 0.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    decay: float = 0.0
    clip: float = 1.0
    elastic: float = 0.0


@dataclass(frozen=True)
class StepResult:
    """The gradient's norm before clipping. If it is not finite, nothing was changed except the gradient, which is 0.

    penalty: the anchor's contribution to the loss before the step (AdamW.elastic).
    """

    norm: float
    applied: bool
    penalty: float = 0.0


VECTORS = ("parameters", "first_moment", "second_moment", "fisher")
"""The vectors that a session keeps between steps, in the order of memory and files."""


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The state of a session between two steps, float32 (layout.size,) each; `steps` were applied so far.

    anchor: the parameters to which AdamW.elastic holds the current ones, each with its weight in `fisher`. No step
    changes it. A session allocates memory for it only if there is one.
    """

    parameters: np.ndarray
    first_moment: np.ndarray
    second_moment: np.ndarray
    fisher: np.ndarray
    steps: int = 0
    anchor: np.ndarray | None = None

    @classmethod
    def of(cls, parameters: np.ndarray) -> TrainingState:
        """The state of parameters that were not trained yet. The zeros take no memory, and are read-only."""
        zeros = np.broadcast_to(np.zeros((), parameters.dtype), parameters.shape)
        return cls(parameters, zeros, zeros, zeros)

    def next_task(self) -> TrainingState:
        """The start of a training on something else: a fresh optimizer, held to these parameters by `fisher`.

        If nothing was added to the Fisher information yet, it cannot hold them, and there is no anchor.
        """
        fresh = TrainingState.of(self.parameters)
        return replace(fresh, fisher=self.fisher, anchor=self.parameters) if self.fisher.any() else fresh

    @property
    def vectors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The vectors in VECTORS, in its order: without the anchor."""
        return self.parameters, self.first_moment, self.second_moment, self.fisher

    def copy(self, dtype: np.dtype | None = None) -> TrainingState:
        parameters, first, second, fisher = (np.array(vector, dtype or vector.dtype) for vector in self.vectors)
        anchor = None if self.anchor is None else np.array(self.anchor, dtype or self.anchor.dtype)
        return TrainingState(parameters, first, second, fisher, self.steps, anchor)


class Training(Protocol):
    """A set of LoRA pairs in training. `close` frees its memory.

    Every method may raise TrainingLostError; then all methods except `restore` and `close` raise it, until `restore`
    has restored a state. A caller that was cancelled may have missed the error. Calls take turns with the backend's
    own, like those of `Backend`; between the pieces of `accumulate` and `states` others may run.
    """

    max_rows: int
    """The most rows of a pack."""

    async def restore(self, state: TrainingState) -> None:
        """Start or continue from a state, also after a loss. The gradient is 0 afterwards."""
        ...

    async def save(self) -> TrainingState:
        """A copy of the state, between two steps."""
        ...

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        """Run a pack forward and backward; its gradients are added to those since the last step.

        Raises ValueError if the pack has more rows than `max_rows`, or breaks its own rules (`check_pack`).
        If it is cancelled, `clear` must be called before the next pack.
        """
        ...

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        """The states of the base alone, without the pairs, in the pack's loss_rows: float32 (L, hidden_size)."""
        ...

    async def step(self, rule: AdamW) -> StepResult:
        """Change the parameters by the accumulated gradient, which is 0 afterwards."""
        ...

    async def clear(self) -> None:
        """Set the gradient to 0."""
        ...

    async def add_fisher(self, keep: float, weight: float) -> None:
        """fisher = keep * fisher + weight * gradient^2, element by element; the gradient is 0 afterwards."""
        ...

    async def gradient(self) -> np.ndarray:
        """The accumulated gradient: float32 (layout.size,)."""
        ...

    def close(self) -> None: ...


def check_pack(pack: Pack, vocab_size: int, context_length: int, max_rows: int) -> None:
    """The checks of every backend before it runs a pack. Raises ValueError with the rule that is broken."""
    m, count = pack.rows, len(pack.loss_rows)
    if not 1 <= m <= max_rows:
        raise ValueError(f"A pack has 1 to {max_rows} rows, not {m}.")
    if not len(pack.positions) == len(pack.starts) == m:
        raise ValueError("A pack's tokens, positions and starts must be of one length.")
    if not len(pack.targets) == len(pack.weights) == len(pack.kl_weights) == count:
        raise ValueError("A pack's loss rows, targets and weights must be of one length.")
    if pack.base_states is None and np.any(pack.kl_weights != 0):
        raise ValueError("A pack with KL weights needs the base's states.")
    for name, numbers, end in (
        ("tokens", pack.tokens, vocab_size), ("positions", pack.positions, context_length),
        ("loss rows", pack.loss_rows, m), ("targets", pack.targets, vocab_size),
    ):  # fmt: skip
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= end):
            raise ValueError(f"A pack's {name} must be 0 to {end - 1}.")
    rows = np.arange(m)
    begins = rows == pack.starts
    expected = np.maximum.accumulate(np.where(begins, rows, 0))
    if not 0 <= pack.prefix <= m or np.any(np.where(rows < pack.prefix, 0, expected) != pack.starts):
        raise ValueError("A pack's starts must be 0 in the prefix, then each row's first row of its own sequence.")
    if pack.prefix < m and pack.starts[pack.prefix] != pack.prefix:
        raise ValueError("A pack's first sequence begins behind the prefix.")
    if np.any(np.diff(pack.loss_rows) <= 0):
        raise ValueError("A pack's loss rows must be in order, each once.")
