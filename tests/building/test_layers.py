"""The allowed imports between parts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_part_imports_only_what_lies_below_it() -> None:
    """The contracts are in pyproject.toml."""
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert linted.returncode == 0, linted.stdout


def test_the_application_reaches_the_backend_through_the_engine_alone() -> None:
    for path in sorted(ROOT.glob("app/**/*.py")):
        reached = re.findall(r"\b(?:model|engine|loaded)\.backend\b", path.read_text(encoding="utf-8"))
        assert not reached, f"{path.relative_to(ROOT)} reaches past the engine"


def test_the_product_needs_nothing_of_the_tests() -> None:
    """Neither a module, nor a file by its path, such as ROOT / "tests" / "bench"."""
    for path in (*sorted(ROOT.glob("app/**/*.py")), *sorted(ROOT.glob("py_core/**/*.py"))):
        source = path.read_text(encoding="utf-8")
        reached = re.findall(r"^\s*(?:from|import) tests\b.*|/ *[\"']tests\b.*|[\"']tests/.*", source, re.MULTILINE)
        assert not reached, f"{path.relative_to(ROOT)} needs {reached}"
