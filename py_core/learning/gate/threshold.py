"""The threshold of the lesson gate, fitted to feedback on answers that lessons gave or should have given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOWER, HIGHER = 1.0, 2.0
"""The fitted threshold stays this near the shipped one, which was fitted on thousands of pairs."""
PRIOR = 2.0
"""About how many answers it takes to move the threshold by 1 away from the shipped one."""
WIDTH = 0.5
STEP = 0.05


@dataclass(frozen=True)
class Evidence:
    """A message. score: the gate's logit for the lesson. opens: True if that lesson should have answered."""

    score: float
    opens: bool
    weight: float = 1.0


def fitted_threshold(shipped: float, evidence: Sequence[Evidence]) -> tuple[float, float]:
    """The threshold, and the confidence in it, 0 to 1. Without evidence: the shipped threshold and 0.

    It minimizes the logistic loss of each piece of evidence on its side of the threshold, with a scale of WIDTH, plus
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
