"""Code that all backends share is tested in the gate on WASM, the cheapest backend with all features, and on numpy.

The GPU's kernels on a processor take ten times as long. Each feature has one test in the gate there, too: a test
that fails if the GPU's part of it is missing or wrong. It is marked `every_backend`; the others are in `all`.
That holds for the tests in FOLDERS.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = [Path(__file__).parent / name for name in ("backends", "grammar", "paging", "speculation")]
ON_THE_GPU = {"webgpu", "device"}
"""Its name in the parameters of fixtures, which may say more behind a hyphen."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        case = getattr(item, "callspec", None)
        if item.path.parent not in FOLDERS or case is None or item.get_closest_marker("every_backend"):
            continue
        if any(isinstance(value, str) and value.partition("-")[0] in ON_THE_GPU for value in case.params.values()):
            item.add_marker("all")
