"""Keeps on this machine which shapes of the GPU kernels were measured as the fastest."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from app.paths import cache_dir


class AutotuneCache:
    """A file in the cache. It can be measured again: where it cannot be written, it is not kept."""

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
