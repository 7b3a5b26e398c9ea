"""How many random examples a test draws: a quarter of them in the gate, all in `build.py test --all`."""

from __future__ import annotations

from hypothesis import settings

ALL = 100
"""What a test without a number draws outside of the gate: the default of Hypothesis."""


def examples(number: int) -> settings:
    """@examples(500): the test draws so many; in the gate a quarter, as tests without a number do."""
    return settings(max_examples=max(1, number * settings.default.max_examples // ALL))
