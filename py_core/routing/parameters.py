"""The parameters of the router's arithmetic: fitted by app/training/router.py, stored in
app/routing/agents/router.toml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from py_core.display import shown


class ParametersError(ValueError):
    """The router's parameters are incomplete or invalid; the message says which."""


@dataclass(frozen=True)
class RouterParameters:
    neighbours: int
    """The number of patterns that vote."""
    temperature: float
    """The temperature of the votes: a neighbour this much less similar than the nearest has 1/e of its weight."""
    head_words: float
    """The words' part of the linear head's input, from 0 to 1; the rest is the vector."""
    head_ridge: float
    head_scale: float
    """The factor of the head's scores before their softmax."""
    votes: float
    """The votes' part of the shares; the rest is the head's."""
    learned_similarity: float
    """The similarity to the request at which a user's pattern gets half of the weight."""
    learned_width: float
    """The increase in similarity that multiplies the odds of a user's pattern by e."""
    learned_lead: float
    """A user's pattern gets half of the weight even if an example is more similar by this much."""
    threshold: float
    """The least confidence: below it the fallback answers."""
    calibration: tuple[float, float, float, float, float, float]
    """Coefficients of the logistic regression: see Router._confidence."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("neighbours", 1, 1000),
            ("temperature", 1e-4, 10),
            ("head_words", 0, 1),
            ("head_ridge", 1e-6, 1e6),
            ("head_scale", 0, 1000),
            ("votes", 0, 1),
            ("learned_similarity", -1, 1),
            ("learned_width", 1e-4, 10),
            ("learned_lead", 0, 2),
            ("threshold", 0, 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise ParametersError(
                    f"The router's {name} is {shown(value)}: it must be a number from {least} to {most}."
                )
        if not isinstance(self.neighbours, int):
            raise ParametersError(f"The router's neighbours are {shown(self.neighbours)}: it must be a whole number.")
        if len(self.calibration) != 6 or not all(math.isfinite(value) for value in self.calibration):
            raise ParametersError("The router's calibration must be 6 numbers.")


def parameters_from_dict(data: Mapping[str, Any]) -> RouterParameters:
    """Raises ParametersError."""
    names = {field.name for field in fields(RouterParameters)}
    if missing := sorted(names - set(data)):
        raise ParametersError(f"The router's parameters lack {', '.join(missing)}: run app/training/router.py.")
    if unknown := sorted(set(data) - names):
        raise ParametersError(f"The router has no parameter {shown(unknown[0])}.")
    return RouterParameters(**{**data, "calibration": tuple(data["calibration"])})
