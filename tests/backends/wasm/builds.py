"""The build of the kernels in which a model is tested: single kernels are tested in every build."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from app.models.build_outputs import MODEL_BUILDS
from tests.models.architectures.variants import OUTSIDE_GATE

OTHERS = ("pairs", "simd")
"""The native build, and the build for browsers without relaxed SIMD."""


def in_turn(names: Iterable[str], builds: Sequence[str] = MODEL_BUILDS, first: int = 0) -> pytest.MarkDecorator:
    """Parameters `name` and `build`: each name with one build in the gate, taking turns, and with the others in `all`.

    Names in OUTSIDE_GATE are in `all` only. `first` is the number of the first name's build: tests over the same names
    should differ in it.
    """
    return pytest.mark.parametrize(
        ("name", "build"),
        [
            pytest.param(name, build, marks=[] if turn == number and name not in OUTSIDE_GATE else [pytest.mark.all])
            for turn, name in ((at % len(builds), name) for at, name in enumerate(names, first))
            for number, build in enumerate(builds)
        ],
    )
