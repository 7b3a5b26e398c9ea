"""The examples' vectors and the router's head (py_core/routing/routing_data.py), kept in <cache>/routing/.

Making them takes twenty seconds, mostly to embed the examples: too long for the page or a command. They are 2.2 MB and
change with each embedder, too much for the repository. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from app.building.common import make_in_venv
from app.models.build_outputs import ROUTING_DATA, routing_file


def ensure_routing(cache: Path, multilingual: bool = False) -> dict[str, Path]:
    """Make the file, if needed, after the embedder, in .venv. Returns its name -> path. Raises BuildError with the
    cause."""
    made = routing_file(cache, multilingual)
    failure = "The vectors of the agents' examples could not be made"
    arguments: list[str | Path] = ["--multilingual"] if multilingual else []
    make_in_venv(made, "Vectors of the agents' examples", "app.building.routing_export", arguments, failure)
    return {ROUTING_DATA: made}
