"""The examples' vectors and the router's head (py_core/routing/routing_data.py), kept in <cache>/routing/.

Making them takes ten seconds, mostly to embed the examples: too long for the page or a command. And 2.2 MB that are
others with each embedder are too much for the repository. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path

from app.building.common import ROOT, VENV_PYTHON, heading, run_logged, sha256_of
from app.building.embedder import embedder_files

NAME = "routing.safetensors"
_AGENTS = ROOT / "app" / "agents"
_SOURCES = (
    *("app/agents/out_of_scope.toml", "app/building/routing_export.py"),
    *("py_core/routing/head.py", "py_core/routing/routing_data.py"),
)


def routing_file(cache: Path) -> Path:
    """Where the file lies, or will lie once it is made. The folder is named after all that goes into it."""
    parameters = tomllib.loads((_AGENTS / "router.toml").read_text(encoding="utf-8"))
    files = embedder_files(cache)
    parts = [files.model.parent.name, files.fingerprint]
    parts += [f"{name} {value}" for name, value in parameters.items() if name.startswith("head_")]
    sources = [*sorted((_AGENTS / "examples").glob("*.toml")), *(ROOT / name for name in _SOURCES)]
    parts += [f"{path.name} {sha256_of(path)}" for path in sources]
    return cache / "routing" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] / NAME


def ensure_routing(cache: Path) -> dict[str, Path]:
    """Make the file, if need be, after the embedder, in .venv. Its name -> path. BuildError: what went wrong."""
    made = routing_file(cache)
    if not made.is_file():
        heading("Vectors of the agents' examples")
        made.parent.mkdir(parents=True, exist_ok=True)
        partial = made.with_suffix(".part")
        command: list[str | Path] = [VENV_PYTHON, "-m", "app.building.routing_export", partial]
        try:
            run_logged(command, "The vectors of the agents' examples could not be made")
            os.replace(partial, made)
        finally:
            partial.unlink(missing_ok=True)
    return {NAME: made}
