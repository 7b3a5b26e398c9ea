"""If several tabs or programs have the same memory open, only one of them learns in idle times."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class FileLock:
    """See `OnlyOne`. The lock of a file; it goes with the program. On Windows every program may learn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    async def take(self) -> bool:
        try:
            import fcntl
        except ImportError:
            return True
        if self._file is None:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                return False
            self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class TabLock:
    """See `OnlyOne`: web/learning/one_learner.js."""

    def __init__(self, one_learner: Any) -> None:
        self._one_learner = one_learner

    async def take(self) -> bool:
        return bool(await self._one_learner.take())

    def release(self) -> None:
        self._one_learner.release()
