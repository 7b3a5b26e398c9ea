"""How many random examples a test draws: a quarter of them in the gate, all in `build.py test --all`."""

from __future__ import annotations

from hypothesis import settings

ALL = 100
"""What a test draws that asks for no number."""


def examples(number: int) -> settings:
    """@examples(500): so many, and as many less in the gate as `settings.default` has less than ALL there."""
    return settings(max_examples=max(1, number * settings.default.max_examples // ALL))
