"""Stores the shapes of the GPU kernels that were measured to be the fastest on this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from app.paths import cache_dir


class AutotuneCache:
    """A file in the cache. The shapes can be measured again: if it cannot be written, they are not kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_dir() / "tuning.json"

    async def read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""

    async def write(self, text: str) -> None:
        part = self._path.with_suffix(f".{os.getpid()}.part")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            os.replace(part, self._path)
