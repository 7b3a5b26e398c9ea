"""Sequences that are decoded at the same time run together: each has a row of the same steps.

A step over several rows costs little more than a step over one row, since all of them read the weights once. Sequences
join and leave between two steps: what is in flight is waited for, and the next steps have other rows. A single sequence
has the same steps and guesses as it would without groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from py_core.backend_errors import BackendError, DeviceLostError
from py_core.backends.protocols import Backend
from py_core.engine.turns import DeviceTurn, Priority, Turns
from py_core.grammar.expressions import GrammarError
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence

LOOK_AHEAD = 128
"""Tokens that may wait for a reader: more than a fast device samples before a reader that does not pause returns."""


class Stream:
    """The ids of one sequence on their way to its reader."""

    def __init__(self, on_read: Callable[[], None]) -> None:
        self._on_read = on_read
        self._unread: list[int] = []
        self._closed = False
        self._written = asyncio.Event()

    @property
    def has_room(self) -> bool:
        return len(self._unread) < LOOK_AHEAD

    def write(self, ids: list[int]) -> None:
        self._unread += ids
        self._written.set()

    def close(self) -> None:
        """End the stream: nothing more will be written."""
        self._closed = True
        self._written.set()

    async def read(self) -> list[int]:
        """All unread ids, as soon as there are any; nothing at the end."""
        while not self._unread and not self._closed:
            self._written.clear()
            await self._written.wait()
        ids, self._unread = self._unread, []
        self._on_read()
        return ids


class Decoding:
    """A sequence that is being decoded, until `left` is 0, and the stream of its ids."""

    def __init__(self, group: SequenceGroup, sequence: TokenSequence, left: int, sampling: SamplingParams) -> None:
        self._group, self.sequence, self.left, self.sampling = group, sequence, left, sampling
        self.stream = Stream(group.wake)
        self.alone = False
        """True if the sequence shares no steps any more because steps shared with others failed."""
        self.error: Exception | None = None
        """The error that ended it early, if it failed."""

    def cancel(self) -> None:
        """End it at once. What is in flight is dropped. Sequences that share its steps get their tokens again."""
        self._group.drop(self)


class SequenceGroup:
    """Sequences of one priority that run with the same set of LoRA matrices.

    If there are more than the best number of rows of a step, those that waited longest go first, the others after a
    turn.
    """

    def __init__(self, backend: Backend, turns: Turns, priority: Priority) -> None:
        self._backend, self._turns, self._priority = backend, turns, priority
        self._members: list[Decoding] = []
        """The sequences, the longest waiting first; a sequence that has just joined is also first."""
        self._rows: list[Decoding] = []
        """The sequences of the steps under way. Some of them may have left."""
        self._task: asyncio.Task[None] | None = None
        self._woken, self._between = asyncio.Event(), asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._members

    def join(self, decoding: Decoding) -> None:
        self._members.insert(0, decoding)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        self.wake()

    async def leave(self, decoding: Decoding) -> None:
        """Remove a sequence. Afterwards nothing is under way for it. Sequences that share its steps continue with the
        steps in flight."""
        task = self._task
        if decoding in self._members:
            self._members.remove(decoding)
        if not self._members or (self._rows and not set(self._rows) & set(self._members)):
            self._restart()
            if task is not None:
                await asyncio.wait([task])
        try:
            while decoding in self._rows:
                self._between.clear()
                await self._between.wait()
        except asyncio.CancelledError:
            self.drop(decoding)
            raise

    def drop(self, decoding: Decoding) -> None:
        """Remove a sequence as `leave` does, but at once: what is in flight is dropped."""
        if decoding in self._members:
            self._members.remove(decoding)
        decoding.stream.close()
        if decoding in self._rows or not self._members:
            self._restart()

    def wake(self) -> None:
        """Note that a sequence joined, or that a reader has read."""
        self._woken.set()

    def _restart(self) -> None:
        """End the steps under way, and everything that waits for them. Begin again with the remaining sequences."""
        self._rows = []
        self._between.set()
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._run()) if self._members else None

    async def _run(self) -> None:
        while self._members:
            if not self._next():
                self._woken.clear()
                await self._woken.wait()
                continue
            async with DeviceTurn(self._turns, self._priority, decodes=True) as turn:
                if rows := self._next():
                    await self._decode(rows, turn)
        self._task = None

    def _ready(self) -> list[Decoding]:
        return [one for one in self._members if one.stream.has_room]

    def _next(self) -> list[Decoding]:
        """The sequences of the next steps."""
        ready = self._ready()
        if ready and ready[0].alone:
            return ready[:1]
        ready = [one for one in ready if not one.alone]
        return ready[: self._backend.rows_that_pay(len(ready))] if ready else []

    async def _decode(self, rows: list[Decoding], turn: DeviceTurn) -> None:
        """Run steps of these sequences until it is the turn of others, or one is done."""

        def keep_going() -> bool:
            return self._next() == rows and not turn.is_over and not (turn.was_long and len(self._ready()) > len(rows))

        self._rows = rows
        steps = self._backend.decode_together(
            [one.sequence for one in rows], min(one.left for one in rows), [one.sampling for one in rows], keep_going
        )
        try:
            async with aclosing(steps) as batches:
                async for found in batches:
                    turn.is_used = True
                    for one, ids in zip(rows, found, strict=True):
                        one.left -= len(ids)
                        one.stream.write(ids)
                    # If the next batch is there already, waiting for it would not let the readers run in between.
                    await asyncio.sleep(0)
        except Exception as error:
            self._fail(rows, error)
        finally:
            if self._rows is rows:
                self._rows = []
                self._between.set()
        served = [one for one in rows if one in self._members]
        self._members = [one for one in self._members if one not in served] + [one for one in served if one.left]
        for one in served:
            if not one.left:
                one.stream.close()

    def _fail(self, rows: list[Decoding], error: Exception) -> None:
        """Handle an error of shared steps. One sequence may have caused it, for example without room: each continues
        alone."""
        is_of_one = isinstance(error, BackendError | GrammarError) and not isinstance(error, DeviceLostError)
        alone = is_of_one and len(rows) > 1
        for one in rows:
            one.alone = True
            if not alone:
                one.left, one.error = 0, error
