"""Chooses the examples of each training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from py_core.training.packing import TrainingExample

Batches = Callable[[int], Sequence[TrainingExample]]
"""The examples of a step, counted from 0. The same step always gives the same ones, since it may run again."""


def shuffled(examples: Sequence[TrainingExample], size: int, seed: int) -> Batches:
    """`size` examples per step, each of them once a round, every round in another order.

    Raises ValueError if there are no examples, or `size` is not at least 1.
    """
    if not examples or size < 1:
        raise ValueError("There is nothing to train with: batches need an example, and a size of at least 1.")

    def of_step(step: int) -> list[TrainingExample]:
        places = range(step * size, (step + 1) * size)
        rounds = {place // len(examples) for place in places}
        orders = {number: np.random.default_rng([seed, number]).permutation(len(examples)) for number in rounds}
        return [examples[orders[place // len(examples)][place % len(examples)]] for place in places]

    return of_step
