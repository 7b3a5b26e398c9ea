"""The learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The rate of each of `steps` steps: linear growth for `warm_up` steps, then half a cosine down to 0."""

    rate: float
    steps: int
    warm_up: int = 5

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0. No step within `steps` has a rate of 0."""
        if step < self.warm_up:
            return self.rate * (step + 1) / (self.warm_up + 1)
        way = (step - self.warm_up) / max(self.steps - self.warm_up, 1)
        return self.rate * (1 + math.cos(math.pi * way)) / 2
