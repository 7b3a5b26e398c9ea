"""A person's preferred style: one small pair of matrices at the head's input, learned from answers they liked.

    rows = await rows_of(engine, sequence, prompt, answer, priority)    # for each liked answer
    found = await learn_style(training, StyleRows.joined([rows, ...]), generic, recipe)
    found.adapter                               # h' = h + b @ (a @ h), for `Engine.put_head_adapter`

States do not depend on later tokens, so they are read once. An update runs the output matrix alone
(`Training.head_gradient`). Its gradient is exact: with g the loss's gradient at h', that of b is g' (h a') and that of
a is (g b)' h. The loss is the cross-entropy of the liked answers' tokens plus the KL divergence from the plain model's
own probabilities on generic states. The latter is also a trust region: a step that exceeds a bound is halved, and
refused if that does not help.

One pair of rank 4 for all that a person likes cannot hold facts, and is not used for them: trained on 24 facts in
sequence, it ruins the model long before it answers any (docs/decisions/0044). Facts are lessons (imprint.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from py_core.adapters.head import HeadAdapter
from py_core.engine.engine import Engine
from py_core.engine.scheduler import Priority
from py_core.learning.imprint_maker import STATES
from py_core.messages import Message, UserError
from py_core.token_sequence import TokenSequence
from py_core.training.session import HeadRows, Training

MAX_RANK = 4
NOTHING = Message("style.nothing", "There is nothing to learn a style from, or it is too long for this model.")
_SHARES = (1.0, 0.5, 0.25, 0.125, 0.0)
"""Shares of a step that are tried in order until one is within the bound; 0 refuses the step."""
_BEGIN, _END = (3, 2), 2
"""Weights of an answer's first tokens, and of its end token."""
_RIDGE = 5.0
"""Relative to the mean of the diagonal. With less, a learns what these liked answers share, but unseen ones do not."""
_GROWN = 1.3
"""The factor by which steps grow again after one that was taken whole."""
_BETAS, _EPS = (0.9, 0.95), 1e-8


_Pair = tuple[np.ndarray, np.ndarray]


class StyleError(UserError, ValueError):
    """The numbers do not fit each other; the message says which."""


@dataclass(frozen=True)
class StyleRecipe:
    """rank: 1 to MAX_RANK. steps of `batch` tokens of liked answers and `held` generic states each. rate: of Adam,
    decaying to 0 by a cosine. divergence: the KL's weight in the loss. bound: the most nats of KL per generic state
    of a step. seed: for a's initial values and the batches."""

    rank: int = 4
    steps: int = 24
    rate: float = 0.04
    warm_up: int = 5
    batch: int = 32
    held: int = 32
    divergence: float = 30.0
    bound: float = 0.015
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class StyleRows:
    """states float32 (n, hidden): the output matrix's input before each of tokens int32 (n,). weights int32 (n,):
    how often a row is learned from, relative to the others."""

    states: np.ndarray
    tokens: np.ndarray
    weights: np.ndarray

    @classmethod
    def of_answer(cls, states: np.ndarray, tokens: Sequence[int]) -> StyleRows:
        """The rows of one answer from its first token to its end. The beginning decides how the rest continues."""
        weights = np.ones(len(tokens), np.int32)
        weights[: len(_BEGIN)] = _BEGIN[: len(tokens)]
        weights[-1] = max(weights[-1], _END)
        return cls(states, np.array(tokens, np.int32), weights)

    @classmethod
    def joined(cls, rows: Sequence[StyleRows]) -> StyleRows:
        """Raises StyleError if there are none."""
        if not rows:
            raise StyleError(NOTHING)
        return cls(*(np.concatenate([getattr(one, name) for one in rows]) for name in ("states", "tokens", "weights")))


@dataclass(frozen=True)
class StyleStep:
    """Nats per token of the liked answers and KL per generic state after a step, with the gradient's norm there. kept:
    the share of the step that was taken, 0 if it was refused. The first one is before any step."""

    cross_entropy: float
    divergence: float
    norm: float
    kept: float


@dataclass(frozen=True, eq=False)
class LearnedStyle:
    adapter: HeadAdapter
    steps: tuple[StyleStep, ...]


def pair_gradients(adapter: HeadAdapter, states: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of a and b, for a loss with gradients `slopes` at `adapter.changed(states)`; both (n, hidden)."""
    return (slopes @ adapter.b).T @ states, slopes.T @ (states @ adapter.a.T)


async def learn_style(
    training: Training, liked: StyleRows, generic: np.ndarray, recipe: StyleRecipe,
    stepped: Callable[[StyleStep], None] = lambda step: None,
) -> LearnedStyle:  # fmt: skip
    """The pair that makes the liked answers more likely and keeps the plain model's predictions for generic states.

    generic: float32 (n, hidden). The same rows and recipe give the same bits. A step whose numbers are not finite is
    refused. Raises BackendError, and StyleError if rows do not fit each other or are not finite.
    """
    _check(training, liked, generic, recipe)
    draw = np.random.default_rng(recipe.seed)
    whiten = _whitening(generic)
    seen = liked.states @ whiten
    length = np.float32(np.linalg.norm(seen, axis=1).mean())
    mean = seen.mean(axis=0) / np.linalg.norm(seen.mean(axis=0))
    # The first row of a separates liked answers from generic text. b begins at 0.
    drawn = draw.standard_normal((recipe.rank, len(mean))).astype(np.float32)
    drawn[0] = mean * np.float32(math.sqrt(len(mean)))
    pair: _Pair = drawn, np.zeros((len(mean), recipe.rank), np.float32)
    radius = 1.0
    proposed, moments, steps = pair, (_Adam(pair[0]), _Adam(pair[1])), list[StyleStep]()
    pool = np.repeat(np.arange(len(liked.tokens)), liked.weights)
    answers, generics = _drawn(draw, pool, recipe.batch), _drawn(draw, np.arange(len(generic)), recipe.held)
    for number in range(recipe.steps + 1):
        chosen = next(answers)
        states = np.concatenate([liked.states[chosen], generic[next(generics)]])
        for kept in _SHARES:
            tried = _between(pair, proposed, kept)
            adapter = HeadAdapter(tried[0] @ whiten / length, tried[1])
            rows = _head_rows(adapter.changed(states), states, liked.tokens[chosen], recipe.divergence)
            loss, slopes = await training.head_gradient(rows)
            divergence = loss.divergence / recipe.divergence
            if math.isfinite(loss.total) and np.isfinite(slopes).all() and (divergence <= recipe.bound or not kept):
                break
        else:
            raise StyleError(
                "style.no-numbers",
                "The model gives no finite probabilities for these answers. Its file may be damaged.",
            )
        pair = tried
        down, up = pair_gradients(adapter, states, slopes)
        gradients = down @ whiten / length, up
        norm = math.sqrt(sum(float((one.astype(np.float64) ** 2).sum()) for one in gradients))
        steps.append(StyleStep(loss.cross_entropy, divergence, norm, kept))
        stepped(steps[-1])
        if number < recipe.steps:
            # If the last step was too long, the next would be, too.
            radius = min(radius * _GROWN, 1.0) if kept == 1 else radius * max(kept, _SHARES[-2])
            clip = np.float32(min(1.0, recipe.clip / max(norm, 1e-30)))
            rate = np.float32(radius * _rate(recipe, number))
            changes = [moment.change(clip * one) for moment, one in zip(moments, gradients, strict=True)]
            proposed = pair[0] - rate * changes[0], pair[1] - rate * changes[1]
    return LearnedStyle(HeadAdapter(pair[0] @ whiten / length, pair[1]), tuple(steps))


async def rows_of(
    engine: Engine, sequence: TokenSequence, prompt: Sequence[int], answer: Sequence[int], priority: Priority
) -> StyleRows:
    """Read an answer behind its prompt, with the sequence's LoRA set. Raises ContextFullError, BackendError."""
    engine.hold(sequence, [*prompt, *answer[:-1]])
    states = (await engine.hidden(sequence, [STATES], len(prompt) - 1, priority))[STATES]
    return StyleRows.of_answer(states, answer)


def scaled(adapter: HeadAdapter, scale: float) -> HeadAdapter:
    """The adapter with its change multiplied by `scale`."""
    return HeadAdapter(adapter.a, adapter.b * np.float32(scale))


async def row_nll(
    training: Training, rows: StyleRows, adapter: HeadAdapter | None, compared: bool = False, batch: int = 256
) -> tuple[float, float]:
    """Nats per token of the rows' tokens and, if `compared`, the KL per row from the plain model, else 0.

    Raises BackendError.
    """
    cross_entropy = divergence = 0.0
    for begin in range(0, len(rows.tokens), batch):
        part = slice(begin, begin + batch)
        states, tokens = rows.states[part], rows.tokens[part]
        ones = np.ones(len(tokens), np.float32)
        changed = adapter.changed(states) if adapter else states
        rest = (ones, states) if compared else (0 * ones, None)
        loss, _ = await training.head_gradient(HeadRows(changed, tokens, ones, *rest))
        cross_entropy, divergence = cross_entropy + loss.cross_entropy, divergence + loss.divergence
    return cross_entropy / len(rows.tokens), divergence / len(rows.tokens)


class _Adam:
    """The optimizer's state for one matrix."""

    def __init__(self, like: np.ndarray) -> None:
        self._first, self._second, self._steps = np.zeros_like(like), np.zeros_like(like), 0

    def change(self, gradient: np.ndarray) -> np.ndarray:
        """The step to subtract from the matrix, to be multiplied by the rate."""
        self._steps += 1
        self._first += np.float32(1 - _BETAS[0]) * (gradient - self._first)
        self._second += np.float32(1 - _BETAS[1]) * (gradient * gradient - self._second)
        first = self._first / np.float32(1 - _BETAS[0] ** self._steps)
        second = self._second / np.float32(1 - _BETAS[1] ** self._steps)
        return first / (np.sqrt(second) + np.float32(_EPS))


def _whitening(states: np.ndarray) -> np.ndarray:
    """C^-1/2 (hidden, hidden) of states (n, hidden), with C their second moment plus a part of its mean on the
    diagonal: directions that many states share are damped, and rare directions count as much."""
    moment = states.T.astype(np.float64) @ states.astype(np.float64) / len(states)
    values, vectors = np.linalg.eigh(moment + np.eye(len(moment)) * (_RIDGE * np.trace(moment) / len(moment)))
    return ((vectors / np.sqrt(values)) @ vectors.T).astype(np.float32)


def _head_rows(changed: np.ndarray, states: np.ndarray, tokens: np.ndarray, divergence: float) -> HeadRows:
    """The tokens' rows come first; the others have the divergence. Each kind is averaged over its rows."""
    count, generic = len(tokens), len(states) - len(tokens)
    weights, kl_weights = np.zeros((2, len(states)), np.float32)
    weights[:count], kl_weights[count:] = 1 / count, divergence / generic
    tokens = np.concatenate([tokens, np.zeros(generic, np.int32)])
    return HeadRows(changed, tokens, weights, kl_weights, states)


def _between(pair: _Pair, proposed: _Pair, share: float) -> _Pair:
    part = np.float32(share)
    return pair[0] + part * (proposed[0] - pair[0]), pair[1] + part * (proposed[1] - pair[1])


def _drawn(draw: np.random.Generator, pool: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Batches of rows, endlessly: all rows of the pool come before one is repeated."""
    waiting = pool[:0]
    while True:
        if len(waiting) < min(most, len(pool)):
            waiting = np.concatenate([waiting, draw.permutation(pool)])
        yield waiting[:most]
        waiting = waiting[most:]


def _rate(recipe: StyleRecipe, number: int) -> float:
    return recipe.rate * min(1.0, (number + 1) / recipe.warm_up) * 0.5 * (1 + math.cos(math.pi * number / recipe.steps))


def _check(training: Training, liked: StyleRows, generic: np.ndarray, recipe: StyleRecipe) -> None:
    if not 1 <= recipe.rank <= MAX_RANK:
        raise StyleError(
            "style.bad-rank",
            "The rank of a style is {rank}, but must be from 1 to {most}.",
            rank=recipe.rank,
            most=MAX_RANK,
        )
    if not len(liked.tokens) or not len(generic):
        raise StyleError(NOTHING)
    if liked.states.shape != (len(liked.tokens), generic.shape[-1]) or generic.ndim != 2:
        raise StyleError(
            "style.other-shapes",
            "States of {states} and {generic} and {count} tokens do not match.",
            states=liked.states.shape,
            generic=generic.shape,
            count=len(liked.tokens),
        )
    if recipe.batch + recipe.held > training.max_rows:
        raise StyleError("style.many-rows", "A step of a style has at most {most} rows.", most=training.max_rows)
    if not (np.isfinite(liked.states).all() and np.isfinite(generic).all()):
        raise StyleError("style.no-states", "The model's states are not finite numbers. Its file may be damaged.")
