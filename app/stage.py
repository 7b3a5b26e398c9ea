"""A part of the runtime that opens while answers already work."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from py_core.messages import Words


class State(StrEnum):
    OPENING = "opening"
    READY = "ready"
    LOCKED = "locked"
    """For the memory only: a temporary memory answers until the passphrase is typed."""
    FAILED = "failed"
    OFF = "off"


class Stage:
    """The state of the part. Others wait for it until `end`, if it was requested."""

    def __init__(self, is_asked: bool = False) -> None:
        self.state = State.OPENING
        self.why: Words | None = None
        """A sentence, if the part failed or is off."""
        self._ended = asyncio.Event()
        if not is_asked:
            self._ended.set()

    def begin(self) -> None:
        """Note that the part is requested, for the first time or again."""
        self.state, self.why = State.OPENING, None
        self._ended.clear()

    def end(self, state: State, why: Words | None = None) -> None:
        self.state, self.why = state, why
        self._ended.set()

    async def wait(self) -> None:
        """Wait until the part is open, or it is known that it will not be."""
        await self._ended.wait()
