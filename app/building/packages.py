"""The packages for other people's code, in dist-packages/: the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from app.building.common import ROOT, VENV_PYTHON, run_logged

PACKAGES = ROOT / "dist-packages"


def make_packages() -> list[Path]:
    """Make the packages of these sources, and return their files. The site was made before. Raises BuildError."""
    shutil.rmtree(PACKAGES, ignore_errors=True)
    wheel: list[str | Path] = [
        VENV_PYTHON,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
    ]
    run_logged([*wheel, "--no-index", "--wheel-dir", PACKAGES, ROOT], "The wheel could not be made")
    return sorted(PACKAGES.iterdir())
