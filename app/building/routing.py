"""The examples' vectors and the router's head (py_core/routing/routing_data.py), kept in <cache>/routing/.

Making them takes twenty seconds, mostly to embed the examples: too long for the page or a command. And 2.2 MB that are
others with each embedder are too much for the repository. Standard library only.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from app.building.common import ROOT, make_in_venv, sha256_of, short_digest
from app.building.embedder import embedder_files

NAME = "routing.safetensors"
_AGENTS = ROOT / "app" / "agents"
_SOURCES = (
    *("app/agents/more_requests.toml", "app/agents/out_of_scope.toml", "app/building/routing_export.py"),
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
    return cache / "routing" / short_digest(parts) / NAME


def ensure_routing(cache: Path) -> dict[str, Path]:
    """Make the file, if need be, after the embedder, in .venv. Its name -> path. BuildError: what went wrong."""
    made = routing_file(cache)
    failure = "The vectors of the agents' examples could not be made"
    make_in_venv(made, "Vectors of the agents' examples", "app.building.routing_export", [], failure)
    return {NAME: made}
