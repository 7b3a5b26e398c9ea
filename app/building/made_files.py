"""The sha256 of what the build makes itself (kernels, embedder, the router's data), noted when it is made.

No committed checksum says what they are, so this one tells only whether they are still what was made: a file that
a disk or a program has damaged since is made again. One `FILE.sha256` lies beside each.
"""

from __future__ import annotations

import sys
from pathlib import Path

from app.checksums import sha256_of


def note(made: Path) -> None:
    _note_of(made).write_text(sha256_of(made), encoding="utf-8")


def is_whole(made: Path) -> bool:
    """Whether the file is there as it was made; one that is not is deleted. A file of an earlier build is noted now."""
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
