"""Which part may import which: what runs needs neither build nor training, and the core needs no application."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported_by(path: Path) -> set[str]:
    """Every module that a file imports, also inside of functions."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize(
    ("files", "forbidden"),
    [("app/[!bt]*/**/*.py", ("app.building", "app.training")), ("py_core/**/*.py", ("app",))],
    ids=["the runtime imports neither building nor training", "the core does not import the application"],
)
def test_layers(files: str, forbidden: tuple[str, ...]) -> None:
    paths = sorted(ROOT.glob(files))
    assert paths
    for path in paths:
        wrong = {
            name
            for name in imported_by(path)
            if name in forbidden or name.startswith(tuple(f"{f}." for f in forbidden))
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_the_application_reaches_the_backend_through_the_engine_alone() -> None:
    for path in sorted(ROOT.glob("app/**/*.py")):
        reached = re.findall(r"\b(?:model|engine|loaded)\.backend\b", path.read_text(encoding="utf-8"))
        assert not reached, f"{path.relative_to(ROOT)} reaches past the engine"


def test_the_product_needs_nothing_of_the_tests() -> None:
    """Neither a module, nor a file by its path, as in ROOT / "tests" / "bench"."""
    for path in (*sorted(ROOT.glob("app/**/*.py")), *sorted(ROOT.glob("py_core/**/*.py"))):
        source = path.read_text(encoding="utf-8")
        reached = re.findall(r"^\s*(?:from|import) tests\b.*|/ *[\"']tests\b.*|[\"']tests/.*", source, re.MULTILINE)
        assert not reached, f"{path.relative_to(ROOT)} needs {reached}"
