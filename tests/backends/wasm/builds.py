"""The build of the kernels in which a model is tested: single kernels are tested in every build."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from app.models.build_outputs import MODEL_BUILDS

OTHERS = ("pairs", "simd")
"""The native build, and the build for browsers without relaxed SIMD."""


def in_turn(names: Iterable[str], builds: Sequence[str] = MODEL_BUILDS, first: int = 0) -> pytest.MarkDecorator:
    """Parameters `name` and `build`: each name with one build in the gate, taking turns, and with the others in `all`.

    `first` is the number of the first name's build: tests over the same names should differ in it.
    """
    return pytest.mark.parametrize(
        ("name", "build"),
        [
            pytest.param(name, build, marks=[] if (first + at) % len(builds) == number else [pytest.mark.all])
            for at, name in enumerate(names)
            for number, build in enumerate(builds)
        ],
    )
