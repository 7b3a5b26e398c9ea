"""The reference for training: runs a plan of `training/backward.py` with numpy, one operation after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from py_core.adapters.parameters import ParameterLayout
from py_core.backends.numpy.gradients import (
    attention_gradient,
    conv_gradient,
    glu_gradient,
    packed_attention,
    packed_conv,
    rms_norm_gradient,
    seen_rows,
    soft_cap_gradient,
)
from py_core.backends.numpy.rows import glu, rms_norm, rope, soft_cap
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Value
from py_core.models.rotation import Rotation
from py_core.training import gradient_ops as gradients
from py_core.training.gradient_ops import ForwardOp, GradientOp
from py_core.training.plan import TrainingPlan
from py_core.training.session import AdamW, AfterPiece, Loss, Pack, StepResult, TrainingState, check_pack

MAX_ROWS = 512

_CHUNK = 4096
"""Tokens of the vocabulary whose logits exist at a time."""

Values = dict[Value, np.ndarray]


class NumpyTraining:
    """See `Training` for the contract of each method. Computes in the weights' own precision."""

    max_rows = MAX_ROWS

    def __init__(
        self, config: ModelConfig, plan: TrainingPlan, weights: Mapping[str, np.ndarray],
        rotations: Mapping[Rotation, np.ndarray],
    ) -> None:  # fmt: skip
        self._config, self._plan, self._weights, self._rotations = config, plan, weights, rotations
        self._dtype = weights[plan.loss.weight].dtype
        self._gradient = np.zeros(plan.layout.size, self._dtype)
        self._state = TrainingState.of(np.zeros(plan.layout.size, self._dtype))

    @property
    def _layout(self) -> ParameterLayout:
        return self._plan.layout

    async def restore(self, state: TrainingState) -> None:
        self._state = state.copy(self._dtype)
        self._gradient[:] = 0

    async def save(self) -> TrainingState:
        return self._state.copy()

    async def accumulate(self, pack: Pack, after_piece: AfterPiece | None = None) -> Loss:
        check_pack(pack, self._config.vocab_size, self._config.context_length, self.max_rows)
        plan, run = self._plan, _PackRun(self, pack)
        inputs: Values = {}
        values = run.embedded()
        for block in plan.blocks:
            inputs[block.x] = values[block.x]
            run.forward(block.forward, values)
            values = {block.out: values[block.out]}
            await _piece(after_piece)
        run.forward(plan.head, values)
        loss, values[plan.loss.dh] = run.loss(values[plan.loss.h])
        run.backward(plan.head_backward, values)
        await _piece(after_piece)
        for block in reversed(plan.blocks):
            if block.dout is None:
                break
            # The block behind this one made it; for the last block, the head did.
            values = {block.dout: values[block.dout], block.x: inputs.pop(block.x)}
            run.forward(block.recompute, values)
            run.backward(block.backward, values)
            await _piece(after_piece)
        return loss

    async def states(self, pack: Pack, after_piece: AfterPiece | None = None) -> np.ndarray:
        check_pack(pack, self._config.vocab_size, self._config.context_length, self.max_rows)
        plan, run = self._plan, _PackRun(self, pack, base=True)
        values = run.embedded()
        for block in plan.blocks:
            run.forward(block.forward, values)
            values = {block.out: values[block.out]}
            await _piece(after_piece)
        run.forward(plan.head, values)
        return values[plan.loss.h][pack.loss_rows]

    async def step(self, rule: AdamW) -> StepResult:
        state, gradient, penalty = self._state, self._gradient, 0.0
        if rule.elastic and state.anchor is not None:
            apart = state.parameters - state.anchor
            pull = rule.elastic * state.fisher * apart
            penalty = 0.5 * float(np.sum(pull * apart, dtype=np.float64))
            gradient += pull
        norm = float(np.linalg.norm(gradient.astype(np.float64)))
        if not np.isfinite(norm):
            gradient[:] = 0
            return StepResult(norm, applied=False, penalty=penalty)
        if rule.clip and norm > rule.clip:
            gradient *= rule.clip / norm
        steps = state.steps + 1
        first = rule.beta1 * state.first_moment + (1 - rule.beta1) * gradient
        second = rule.beta2 * state.second_moment + (1 - rule.beta2) * gradient * gradient
        change = first / (1 - rule.beta1**steps) / (np.sqrt(second / (1 - rule.beta2**steps)) + rule.eps)
        parameters = state.parameters - rule.rate * (change + rule.decay * state.parameters)
        self._state = TrainingState(parameters, first, second, state.fisher, steps, state.anchor)
        gradient[:] = 0
        return StepResult(norm, applied=True, penalty=penalty)

    async def clear(self) -> None:
        self._gradient[:] = 0

    async def add_fisher(self, keep: float, weight: float) -> None:
        fisher = keep * self._state.fisher + weight * self._gradient * self._gradient
        self._state = replace(self._state, fisher=fisher)
        self._gradient[:] = 0

    async def gradient(self) -> np.ndarray:
        return self._gradient.copy()

    def close(self) -> None:
        self._weights = {}


class _PackRun:
    """The run of one pack. With `base` the pairs are left out."""

    def __init__(self, training: NumpyTraining, pack: Pack, base: bool = False) -> None:
        self._training, self._pack, self._base = training, pack, base
        self._vocabulary = training._config.vocab_size
        self._seen: dict[int, np.ndarray] = {}
        """For each window, the mask of which row sees which: it is the same in all blocks."""
        self._weights, layout = training._weights, training._layout
        self._scale = layout.scale
        self._pairs = layout.views(training._state.parameters)
        self._grown = layout.views(training._gradient)

    def embedded(self) -> Values:
        op = self._training._plan.embedding
        return {op.out: self._weights[op.weight][self._pack.tokens] * self._weights[op.weight].dtype.type(op.scale)}

    def forward(self, operations: Sequence[ForwardOp], values: Values) -> None:
        """Add the operations' results to the values."""
        for op in operations:
            match op:
                case ops.Linear():
                    rows = slice(op.first_row, op.first_row + op.out.width)
                    values[op.out] = values[op.x] @ self._weights[op.weight][rows].T
                    if op.bias:
                        values[op.out] += self._weights[op.bias][rows]
                case gradients.LoraDown():
                    if not self._base:
                        a, _ = self._pairs[op.weight]
                        values[op.out] = values[op.x] @ a.T
                case gradients.LoraUp() if self._base:
                    values[op.out] = values[op.y]
                case gradients.LoraUp():
                    _, b = self._pairs[op.weight]
                    rows = slice(op.first_row, op.first_row + op.out.width)
                    values[op.out] = values[op.y] + self._scale * (values[op.u] @ b[rows].T)
                case ops.RMSNorm(weight=str() as weight):
                    values[op.out] = rms_norm(values[op.x], self._weights[weight], op.eps)
                case ops.Rope():
                    values[op.out] = rope(values[op.x], self._angles(op.rotation), op.num_heads, op.interleaved)
                case gradients.PackedAttention(attention=attention):
                    q, k, v = values[attention.q], values[attention.k], values[attention.v]
                    seen = self._seen_rows(attention.window)
                    values[op.out], values[op.log_sums] = packed_attention(q, k, v, seen, attention)
                case gradients.PackedConv(conv=conv):
                    values[op.out] = packed_conv(values[conv.x], self._weights[conv.weight], self._pack)
                case ops.GLU():
                    values[op.out] = glu(values[op.gate], values[op.up], op.activation)
                case ops.Add():
                    values[op.out] = values[op.a] + values[op.b]
                case ops.SoftCap():
                    values[op.out] = soft_cap(values[op.x], op.cap)

    def backward(self, operations: Sequence[GradientOp], values: Values) -> None:
        """Add the operations' results to the values, and to the parameters' gradients."""
        for op in operations:
            match op:
                case gradients.LinearGradient():
                    weight = self._weights[op.weight][op.first_row : op.first_row + op.dy.width]
                    values[op.out] = _plus(values, op.plus, values[op.dy] @ weight)
                case gradients.LoraUpGradient():
                    _, b = self._pairs[op.weight]
                    _, grown = self._grown[op.weight]
                    rows = slice(op.first_row, op.first_row + op.dy.width)
                    values[op.out] = _plus(values, op.plus, self._scale * (values[op.dy] @ b[rows]))
                    grown[rows] += self._scale * (values[op.dy].T @ values[op.u])
                case gradients.LoraDownGradient():
                    a, _ = self._pairs[op.weight]
                    grown, _ = self._grown[op.weight]
                    grown += values[op.du].T @ values[op.x]
                    if op.out is not None:
                        values[op.out] = _plus(values, op.plus, values[op.du] @ a)
                case gradients.RMSNormGradient():
                    made = rms_norm_gradient(values[op.dy], values[op.x], self._weights[op.weight], op.eps)
                    values[op.out] = _plus(values, op.plus, made)
                case gradients.RopeGradient():
                    back = self._angles(op.rotation) * np.array([1, -1], np.float32)
                    values[op.out] = rope(values[op.dy], back, op.num_heads, op.interleaved)
                case gradients.AttentionGradient(forward=forward):
                    attention = forward.attention
                    values[op.dq], values[op.dk], values[op.dv] = attention_gradient(
                        values[op.dout], values[forward.out], values[forward.log_sums], values[attention.q],
                        values[attention.k], values[attention.v], self._seen_rows(attention.window), attention,
                    )  # fmt: skip
                case gradients.ConvGradient(forward=packed):
                    conv = packed.conv
                    weight = self._weights[conv.weight]
                    values[op.dx] = conv_gradient(values[op.dy], values[conv.x], weight, self._pack)
                case gradients.GLUGradient():
                    found = glu_gradient(values[op.dy], values[op.gate], values[op.up], op.activation)
                    values[op.dgate], values[op.dup] = found
                case gradients.SoftCapGradient():
                    values[op.out] = _plus(values, op.plus, soft_cap_gradient(values[op.dy], values[op.y], op.cap))
                case ops.Add():
                    values[op.out] = values[op.a] + values[op.b]

    def loss(self, h: np.ndarray) -> tuple[Loss, np.ndarray]:
        """Return the loss, and the gradient of h (M, hidden_size)."""
        pack, states = self._pack, h[self._pack.loss_rows]
        dh = np.zeros_like(h)
        targets, rows = pack.targets, np.arange(len(pack.targets))
        if not len(rows):
            return Loss(0.0, 0.0), dh
        sums, base = self._log_sums(states), pack.base_states
        base_sums = None if base is None else self._log_sums(base)
        found, cross_entropy, divergence = np.zeros_like(states), 0.0, 0.0
        for first in range(0, self._vocabulary, _CHUNK):
            logits, weight = self._logits(states, first)
            here = (targets >= first) & (targets < first + len(weight))
            wanted = targets[here] - first
            cross_entropy += float(np.sum(pack.weights[here] * (sums[here] - logits[rows[here], wanted])))
            shares = np.exp(logits - sums[:, None])
            dl = pack.weights[:, None] * shares
            dl[rows[here], wanted] -= pack.weights[here]
            if base is not None and base_sums is not None:
                base_logits, _ = self._logits(base, first)
                base_shares = np.exp(base_logits - base_sums[:, None])
                apart = base_logits - base_sums[:, None] - logits + sums[:, None]
                divergence += float(np.sum(pack.kl_weights * np.sum(base_shares * apart, axis=1)))
                dl += pack.kl_weights[:, None] * (shares - base_shares)
            if cap := self._training._plan.loss.cap:
                dl = soft_cap_gradient(dl, logits, cap)
            found += (dl @ weight).astype(found.dtype)
        dh[pack.loss_rows] = found
        return Loss(cross_entropy, divergence), dh

    def _log_sums(self, states: np.ndarray) -> np.ndarray:
        """Return logsumexp over the vocabulary: (L,)."""
        found = np.full(len(states), -np.inf, states.dtype)
        for first in range(0, self._vocabulary, _CHUNK):
            logits, _ = self._logits(states, first)
            most = logits.max(axis=1)
            found = np.logaddexp(found, most + np.log(np.sum(np.exp(logits - most[:, None]), axis=1)))
        return found

    def _logits(self, states: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits (L, chunk) of a chunk of the vocabulary, and its rows of the output matrix."""
        op = self._training._plan.loss
        rows = slice(first, first + _CHUNK)
        weight = self._weights[op.weight][rows]
        logits = states @ weight.T
        if op.bias:
            logits += self._weights[op.bias][rows]
        return soft_cap(logits, op.cap) if op.cap else logits, weight

    def _seen_rows(self, window: int) -> np.ndarray:
        if window not in self._seen:
            self._seen[window] = seen_rows(self._pack, window)
        return self._seen[window]

    def _angles(self, rotation: Rotation) -> np.ndarray:
        return self._training._rotations[rotation][self._pack.positions]


def _plus(values: Values, plus: Value | None, made: np.ndarray) -> np.ndarray:
    return made if plus is None else values[plus] + made


async def _piece(after_piece: AfterPiece | None) -> None:
    await asyncio.sleep(0)
    if after_piece:
        await after_piece()
