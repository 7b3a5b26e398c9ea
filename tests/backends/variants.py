"""The combinations of choices in which a kernel is tested: each is compiled, which takes a software GPU a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest

CANDIDATES = 40


def covering(count: int, **choices: Sequence[Any]) -> list[dict[str, Any]]:
    """`count` combinations, the same each time, in which as many pairs of choices as possible occur together.

    Each combination is the one of several random ones that adds the most new pairs, a new single choice counting more.
    """
    rng = np.random.default_rng(0)
    names, sizes = list(choices), [len(values) for values in choices.values()]
    seen: set[tuple] = set()
    chosen = []
    for _ in range(count):
        best: tuple[int, list[int], set[tuple]] = (-1, [], set())
        for row in rng.integers(0, sizes, (CANDIDATES, len(sizes))).tolist():
            places = list(enumerate(row))
            new = {*places, *combinations(places, 2)} - seen
            worth = sum(100 if isinstance(one[0], int) else 1 for one in new)
            if worth > best[0]:
                best = (worth, row, new)
        seen |= best[2]
        chosen.append({name: choices[name][at] for name, at in zip(names, best[1], strict=True)})
    assert all(row in seen for at, size in enumerate(sizes) for row in [(at, value) for value in range(size)])
    return chosen


def named(variants: list[dict[str, Any]], gate: int = 12) -> pytest.MarkDecorator:
    """The test takes a `variant`; its id names each choice. Only the first `gate` variants are in the gate.

    The first variants of `covering` have the most choices that no earlier one has.
    """
    parameters = [
        pytest.param(variant, id="-".join(map(str, variant.values())), marks=[pytest.mark.all] if at >= gate else [])
        for at, variant in enumerate(variants)
    ]
    return pytest.mark.parametrize("variant", parameters)


def gated(cases: Iterable[Any], gate: Callable[[Any], bool]) -> list[Any]:
    """Parameters of a test, a tuple for several names; those that `gate` refuses are outside the gate."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if gate(case) else [pytest.mark.all])
        for case in cases
    ]
