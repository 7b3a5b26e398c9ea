"""The sha256 of the files that the build makes itself (kernels, embedder, the router's data), noted when they are made.

No committed checksum covers them, so this one only tells that they are unchanged: a file that a disk or a program has
damaged since is made again. A `FILE.sha256` lies beside each.
"""

from __future__ import annotations

import sys
from pathlib import Path

from app.checksums import sha256_of


def note(made: Path) -> None:
    _note_of(made).write_text(sha256_of(made), encoding="utf-8")


def is_whole(made: Path) -> bool:
    """True if the file exists unchanged; a changed file is deleted. A file of an earlier build is noted now."""
    if not made.is_file():
        return False
    if not _note_of(made).is_file():
        note(made)
    if _note_of(made).read_text(encoding="utf-8") == sha256_of(made):
        return True
    print(f"  {made.name} in the cache is damaged; it is made again", file=sys.stderr)
    made.unlink()
    _note_of(made).unlink()
    return False


def _note_of(made: Path) -> Path:
    return made.with_name(f"{made.name}.sha256")
