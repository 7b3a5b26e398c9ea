"""The number of random examples that a test draws: a quarter of them in the gate, all in `build.py test --all`."""

from __future__ import annotations

from hypothesis import settings

ALL = 100
"""The number for a test without one outside of the gate: the default of Hypothesis."""


def examples(number: int) -> settings:
    """@examples(500): the test draws this number; in the gate a quarter, like tests without a number."""
    return settings(max_examples=max(1, number * settings.default.max_examples // ALL))
