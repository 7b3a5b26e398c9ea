"""The snapshot of the page's Python: the imports before it is made, and the repairs when it is restored.

The build makes it (app/building/python/snapshot.py), the page restores it (web/engine/python_runtime.js). It is the
memory of Python with all that app.page.worker imports, but without NumPy, because a snapshot cannot hold libraries of
machine code. An empty module stands for NumPy, so that `import numpy as np` works. A module that reads anything of it
at import time fails here.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import random
import sys
from pathlib import Path

STAMP = Path(__file__).with_name("stamp.txt")
"""Tells this build's archive of Sonata's packages from others."""
_stamp = ""


class UnfitSnapshotError(Exception):
    """The snapshot was made from other sources than those that came with it."""


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
    """Adapt the snapshot to this page. Raises UnfitSnapshotError."""
    if STAMP.read_text() != _stamp:
        raise UnfitSnapshotError("The snapshot of Python was made of other sources.")
    random.seed()  # else all pages would draw the same numbers
    importlib.invalidate_caches()  # the files are there, but with other dates
    numpy = sys.modules["numpy"]
    spec = numpy.__spec__
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(numpy)
