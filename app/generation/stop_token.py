"""Stops one answer at any stage: from the click to the engine's queue of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopToken:
    """Belongs to one question. Once stopped it stays stopped: an answer that begins with it later ends at once."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._running: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """End the answer after its present tokens."""
        self.is_stopped = True
        for task in self._running:
            task.cancel()

    @contextmanager
    def cancels(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """While it is open, a stop cancels the task."""
        self._running.add(task)
        if self.is_stopped:
            task.cancel()
        try:
            yield
        finally:
            self._running.discard(task)
