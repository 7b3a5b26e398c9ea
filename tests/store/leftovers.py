"""Records with texts that are found again in the files of a database, and in a browser's profile."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from py_core.store.records import Record


class Secrets:
    """Records with incompressible texts, and a search for them in files. Chromium puts a large one into its own
    file."""

    def __init__(self, count: int = 200) -> None:
        texts = [secrets.token_hex(40) for _ in range(count)] + [secrets.token_hex(50_000)]
        self.records = [Record("turn", f"s/{n:06d}", {"content": t}, None, 1.0, 1.0) for n, t in enumerate(texts)]
        self.needles = [text[:60].encode() for text in texts]

    def found_in(self, folder: Path) -> dict[str, int]:
        """The number of texts by file."""
        found = {}
        for path in sorted(folder.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # an exiting browser removes some
                data = path.read_bytes() if path.is_file() else b""
                if count := sum(needle in data for needle in self.needles):
                    found[str(path.relative_to(folder))] = count
        return found
