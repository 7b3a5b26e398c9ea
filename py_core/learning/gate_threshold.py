"""Where the gate of lessons opens: fitted to what a person said of answers that lessons gave, or should have given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOWER, HIGHER = 1.0, 2.0
"""The threshold stays so near the shipped one: that was fitted on thousands of pairs."""
PRIOR = 2.0
"""How many answers it takes to move it by 1 against the shipped one, about."""
WIDTH = 0.5
STEP = 0.05


@dataclass(frozen=True)
class Evidence:
    """A message. score: the gate's for the lesson (a logit). opens: whether that lesson should have answered."""

    score: float
    opens: bool
    weight: float = 1.0


def fitted_threshold(shipped: float, evidence: Sequence[Evidence]) -> tuple[float, float]:
    """The threshold, and how sure that is, 0 to 1. Without evidence it is the shipped one, and nothing is sure.

    The least of: the logistic loss of each piece of evidence on its side of the threshold, with a scale of WIDTH, and
    PRIOR times the squared distance from the shipped one.
    """
    if not evidence:
        return shipped, 0.0
    tried = shipped + np.arange(-LOWER, HIGHER + STEP / 2, STEP)
    scores = np.array([one.score for one in evidence])
    signs = np.array([-1.0 if one.opens else 1.0 for one in evidence])
    weights = np.array([one.weight for one in evidence])
    margins = signs * (scores - tried[:, None]) / WIDTH
    losses = (weights * np.logaddexp(0.0, margins)).sum(axis=1) + PRIOR * (tried - shipped) ** 2
    best = float(tried[int(losses.argmin())])
    total = float(weights.sum())
    return round(best, 6), total / (total + 5.0)
