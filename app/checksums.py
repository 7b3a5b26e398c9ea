"""Checksums that name files and folders. Standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(parts: Iterable[str]) -> str:
    """16 hexadecimal digits: the name of a folder whose content depends on `parts`."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
