"""For maintainers: makes the lock files from pyproject.toml and package.json. Needs the network."""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from pathlib import Path

from app.building.common import ROOT, heading, run_logged

UV = "uv==0.13.8"
"""Installed by the checksums in requirements/lock.lock. After a change here this run still uses the old version, the
next run the new one."""
LOCKS = ROOT / "requirements"
RESOLVE = (
    *("--universal", "--python-version=3.11", "--upgrade", "--generate-hashes", "--no-annotate", "--quiet"),
    # a lock names versions and checksums, not the servers that its maker used
    *("--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command=python build.py lock"),
    "--output-file",
)


def make_locks() -> None:
    """Resolve for every platform and Python >= 3.11 at once, with the sha256 of every file of every package."""
    LOCKS.mkdir(exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build_requires = project["build-system"]["requires"]  # .venv builds the package `sonata` itself without the network
    extras = project["project"]["optional-dependencies"]
    wanted = {
        "runtime": build_requires + project["project"]["dependencies"],
        "dev": project["project"]["dependencies"] + extras["dev"],
        "node": extras["node"],
        "build": extras["build"],
        "lock": [UV],
    }
    with tempfile.TemporaryDirectory() as folder:
        heading("The tool that resolves (uv)")
        run_logged([sys.executable, "-m", "venv", folder], "No virtual environment could be made")
        python = Path(folder, "Scripts" if os.name == "nt" else "bin", "python")
        install_locked(python, LOCKS / "lock.lock")
        for group, requirements in wanted.items():
            heading(f"requirements/{group}.lock")
            source = Path(folder, f"{group}.in")
            constraint: list[str | Path] = [] if group == "runtime" else ["--constraint", LOCKS / "runtime.lock"]
            source.write_text("".join(f"{requirement}\n" for requirement in requirements))
            run_logged(
                [python, "-m", "uv", "pip", "compile", source, *constraint, *RESOLVE, LOCKS / f"{group}.lock"],
                f"The packages of {group} could not be resolved",
            )
    heading("package-lock.json")
    run_logged(
        ["npm", "install", "--package-lock-only", "--omit-lockfile-registry-resolved", "--ignore-scripts"],
        "The npm packages could not be resolved",
    )


def install_locked(python: Path, lock: Path) -> None:
    """Install the packages of a lock for this Python. Raises BuildError if a file has another checksum."""
    words: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", lock]
    run_logged(words, f"The packages of {lock.name} could not be installed")
