"""The snapshot of the page's Python: what is imported before it is made, and what is put right when it is restored.

The build makes it (app/building/snapshot.py), the page restores it (web/engine/python_runtime.js). It is the memory of
Python with all that app.page.worker imports, but without NumPy: libraries of machine code cannot be in one. Its module
is there, empty, so that `import numpy as np` works; who reads anything of it while being imported fails here.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import random
import sys
from pathlib import Path

STAMP = Path(__file__).with_name("stamp.txt")
"""What tells this archive of Sonata's packages from others: of the build."""
_stamp = ""


class UnfitSnapshotError(Exception):
    """The snapshot was made of other sources than those that came with it."""


def prepare() -> None:
    """Import what the page imports. Runs once, in the build."""
    global _stamp
    _stamp = STAMP.read_text()
    spec = importlib.util.find_spec("numpy")
    assert spec is not None
    sys.modules["numpy"] = importlib.util.module_from_spec(spec)
    importlib.import_module("app.page.worker")
    gc.collect()


def restore() -> None:
    """Make what was remembered this page's own. Raises UnfitSnapshotError."""
    if STAMP.read_text() != _stamp:
        raise UnfitSnapshotError("The snapshot of Python was made of other sources.")
    random.seed()  # else all pages would draw the same numbers
    importlib.invalidate_caches()  # the files are there, but with other dates
    numpy = sys.modules["numpy"]
    spec = numpy.__spec__
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(numpy)
