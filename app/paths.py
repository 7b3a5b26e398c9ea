"""Folders and files of Sonata on this machine. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""


def cache_dir() -> Path:
    """Return the folder of downloads and build.py's files: $SONATA_CACHE, else ~/.cache/sonata."""
    chosen = os.environ.get("SONATA_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "sonata"


def memory_path(home: Path | None = None) -> Path:
    """Return the path of the memory: memory.sqlite in `home`, else $SONATA_MEMORY, else in ~/.local/share/sonata.

    Everything else that is learned or kept for it lies beside it.
    """
    if home is not None:
        return home.expanduser().absolute() / "memory.sqlite"
    chosen = os.environ.get("SONATA_MEMORY")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path.home() / ".local" / "share" / "sonata" / "memory.sqlite"
