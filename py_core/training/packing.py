"""Packs examples into passes: a common prefix runs once, and each example sees only its own tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from py_core.training.session import Pack


@dataclass(frozen=True)
class TrainingExample:
    """A sequence of tokens to learn from.

    `weights` and `kl_weights` have a number for each token: how much the model's prediction of it counts, given the
    tokens before it. With `weights` the model learns to predict this very token (cross-entropy), with `kl_weights` to
    predict what its base predicts (KL divergence). Both are 0 if the token is only read, as the first one always is.

    Raises ValueError if these rules are broken, or nothing counts.
    """

    tokens: tuple[int, ...]
    weights: tuple[float, ...]
    kl_weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.weights) == len(self.kl_weights):
            raise ValueError("An example has as many weights and KL weights as tokens.")
        numbers = [*self.weights, *self.kl_weights]
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError("An example's weights are numbers from 0 on.")
        if not any(numbers):
            raise ValueError("An example without a weight above 0 teaches nothing: leave it out.")
        if self.weights[0] or self.kl_weights[0]:
            raise ValueError("An example's first token follows nothing: its weights must be 0.")

    @cached_property
    def counted(self) -> list[int]:
        """The indices of the tokens that count, in order."""
        return [place for place, pair in enumerate(zip(self.weights, self.kl_weights, strict=True)) if any(pair)]

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens that run: all before the last one that counts."""
        return self.tokens[: self.counted[-1]]

    @cached_property
    def compared(self) -> list[int]:
        """The indices of the tokens that have a KL weight, in order."""
        return [place for place, weight in enumerate(self.kl_weights) if weight]


def answer_example(prompt: Sequence[int], answer: Sequence[int]) -> TrainingExample:
    """Learn to predict the answer's tokens after the prompt's; each has the same weight."""
    weights = (*(0.0 for _ in prompt), *(1.0 for _ in answer))
    return TrainingExample((*prompt, *answer), weights, tuple(0.0 for _ in weights))


def base_example(read: Sequence[int], compared: Sequence[int]) -> TrainingExample:
    """Keep the base's predictions for each of the tokens `compared`, after those that are only `read`."""
    kl_weights = (*(0.0 for _ in read), *(1.0 for _ in compared))
    return TrainingExample((*read, *compared), tuple(0.0 for _ in kl_weights), kl_weights)


@dataclass(frozen=True)
class WeightSums:
    """The sums of the weights in all examples of a step, for normalization."""

    weights: float
    kl_weights: float

    @classmethod
    def of(cls, examples: Sequence[TrainingExample]) -> WeightSums:
        return cls(
            math.fsum(weight for example in examples for weight in example.weights),
            math.fsum(weight for example in examples for weight in example.kl_weights),
        )


def in_groups(examples: Sequence[TrainingExample], max_rows: int) -> list[list[TrainingExample]]:
    """Group the examples that share a pass of at most `max_rows` rows: the fewest rows first, then few passes.

    Raises ValueError for an example that is longer than a pass.
    """
    groups: list[list[TrainingExample]] = []
    for example in examples:
        alone = _rows([example])
        if alone > max_rows:
            raise ValueError(
                f"An example of {alone} tokens is longer than a pass of training, which has {max_rows}. Shorten it."
            )
        # Join the group with the longest common beginning.
        fewer = [(_rows([*group, example]) - _rows(group) - alone, number) for number, group in enumerate(groups)]
        fits = [(rows, number) for rows, number in fewer if rows + alone + _rows(groups[number]) <= max_rows]
        saved, number = min(fits, default=(0, 0))
        if saved < 0:
            groups[number].append(example)
        else:
            groups.append([example])
    passes: list[list[TrainingExample]] = []
    for group in groups:
        for other in passes:
            if _rows([*other, *group]) <= min(max_rows, _rows(other) + _rows(group)):
                other += group
                break
        else:
            passes.append(group)
    return passes


def packed(
    group: Sequence[TrainingExample],
    sums: WeightSums,
    divergence: float,
    base_states: Mapping[TrainingExample, np.ndarray],
) -> Pack:
    """A group in one pass. Over a step its weights sum to 1, and its KL weights to `divergence`.

    base_states: for each example with KL weights, the base's states in the rows of `compared_pack`: float32
    (rows, hidden_size).
    """
    prefix = _shared(group)
    tokens, positions, starts = list(group[0].tokens[:prefix]), list(range(prefix)), [0] * prefix
    rows: list[int] = []
    for example in group:
        start = len(tokens)
        # The prediction of a token is in the row before it.
        rows += [start + place - prefix - 1 for place in example.counted]
        own = example.read[prefix:]
        tokens += own
        positions += range(prefix, prefix + len(own))
        starts += [start] * len(own)
    counted = [(example, place) for example in group for place in example.counted]
    weights = [example.weights[place] / (sums.weights or 1) for example, place in counted]
    kl_weights = [divergence * example.kl_weights[place] / (sums.kl_weights or 1) for example, place in counted]
    return Pack(
        tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        prefix=prefix,
        starts=np.array(starts, np.int32),
        loss_rows=np.array(rows, np.int32),
        targets=np.array([example.tokens[place] for example, place in counted], np.int32),
        weights=np.array(weights, np.float32),
        kl_weights=np.array(kl_weights, np.float32),
        base_states=_states(group, base_states) if any(kl_weights) else None,
    )


def compared_pack(example: TrainingExample) -> Pack:
    """The example alone, with the rows of its compared tokens, for `Training.states`."""
    tokens, places = np.array(example.tokens, np.int32), np.array(example.compared, np.int32)
    m, none = places[-1], np.zeros(len(places), np.float32)
    positions, starts = np.arange(m, dtype=np.int32), np.zeros(m, np.int32)
    return Pack(tokens[:m], positions, 0, starts, places - 1, tokens[places], none, none)


def _states(group: Sequence[TrainingExample], base_states: Mapping[TrainingExample, np.ndarray]) -> np.ndarray:
    """The base's state for each token that counts, 0 if it is not compared."""
    parts = []
    width = next(base_states[example].shape[1] for example in group if example.compared)
    for example in group:
        counted = example.counted
        part = np.zeros((len(counted), width), np.float32)
        if example.compared:
            part[np.isin(counted, example.compared)] = base_states[example]
        parts.append(part)
    return np.concatenate(parts)


def _shared(group: Sequence[TrainingExample]) -> int:
    """The length of the common prefix that runs once. Its rows predict no token that counts: each example has its
    own."""
    if len(group) == 1:
        return 0
    most = min(example.counted[0] - 1 for example in group)
    first = group[0].tokens
    return next((n for n in range(most) if any(example.tokens[n] != first[n] for example in group)), most)


def _rows(group: Sequence[TrainingExample]) -> int:
    """The number of rows of the group's pass."""
    prefix = _shared(group)
    return prefix + sum(len(example.read) - prefix for example in group)
